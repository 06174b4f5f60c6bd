package txn

// KeepPlans is a statement for transactions whose further statements find a few rows by an index,
// however large the table is. KeepPlans changes settings of the planner until the end of the
// transaction. With these settings a session plans each of the further statements once. The plan
// is for all parameters, and uses indexes, whatever the statistics say. The session keeps the
// statement and its plan until the session ends. A kept plan costs a tenth of the time that a new
// plan for each execution costs. Without these settings, a plan that was made while a table was
// empty would read all of the table when the table is full.
const KeepPlans = `
SELECT set_config('plan_cache_mode', 'force_generic_plan', true),
       set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
       set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true)`
