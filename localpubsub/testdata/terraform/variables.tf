variable "definition" {
  description = "The schema: one top-level message without imports."
  type        = string
  default     = <<-EOT
    syntax = "proto3";
    message Event {
      string id = 1;
    }
  EOT
}

variable "topic_retention" {
  description = "How long the topic keeps messages."
  type        = string
  default     = "86400s"
}

variable "labels" {
  description = "Labels of the topic and of its subscription."
  type        = map(string)
  default     = { team = "video", stage = "test" }
}

variable "ack_deadline_seconds" {
  description = "The lease on a message of the subscription."
  type        = number
  default     = 60
}

variable "minimum_backoff" {
  description = "The shortest time between a nack and the next delivery."
  type        = string
  default     = "10s"
}

variable "max_delivery_attempts" {
  description = "Deliveries before a message is a dead letter."
  type        = number
  default     = 5
}
