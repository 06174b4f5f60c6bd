# Everything that changes in place, changed.
definition            = <<-EOT
  syntax = "proto3";
  message Event {
    string id = 1;
    string note = 2;
  }
EOT
topic_retention       = "172800s"
labels                = { team = "catalog" }
ack_deadline_seconds  = 120
minimum_backoff       = "20s"
max_delivery_attempts = 10
