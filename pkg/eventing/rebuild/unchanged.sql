DO $unchanged$
BEGIN
  IF EXISTS (
    WITH served AS ({served}), shadow AS ({shadow})
    (TABLE served EXCEPT TABLE shadow) UNION ALL (TABLE shadow EXCEPT TABLE served)
  ) THEN
    RAISE serialization_failure USING MESSAGE = 'the shape of a table has changed just before the exchange';
  END IF;
END
$unchanged$
