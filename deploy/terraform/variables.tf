# The project, and what holds for all of it. The other settings: variables_services.tf,
# variables_access.tf, variables_database.tf and variables_monitoring.tf.

variable "project_id" {
  description = "The Google Cloud project. Topics have fixed names, so a project holds one pair."
  type        = string

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{4,28}[a-z0-9]$", var.project_id))
    error_message = "project_id must be a project's id, such as acme-prod."
  }
}

variable "project_number" {
  description = "The project's number (gcloud projects describe ID --format='value(projectNumber)'): Pub/Sub's own identity is named after it."
  type        = string

  validation {
    condition     = can(regex("^[0-9]{6,}$", var.project_number))
    error_message = "project_number must be the number, not the id."
  }
}

variable "region" {
  description = "Where everything is. The order of a key holds within one region only, so publishers and messages stay in this one: Pub/Sub refuses others."
  type        = string
  default     = "europe-west1"

  validation {
    condition     = can(regex("^[a-z]+-[a-z]+[0-9]+$", var.region))
    error_message = "region must be a region such as europe-west1, not a zone or a multi-region."
  }
}

variable "labels" {
  description = "Of everything that can have labels, such as for the costs of a team. Executions of jobs have none."
  type        = map(string)
  default     = { application = "lockstep" }

  validation {
    condition     = alltrue([for name, value in var.labels : can(regex("^[a-z][a-z0-9_-]{0,62}$", name)) && can(regex("^[a-z0-9_-]{0,63}$", value))])
    error_message = "labels must be of lower-case letters, digits, - and _, and their names begin with a letter."
  }
}

variable "log_level" {
  description = "Of both services. Not error without metrics_sidecar_image: an alert then looks for a line of the level warn."
  type        = string
  default     = "info"

  validation {
    condition     = contains(["debug", "info", "warn", "error"], var.log_level)
    error_message = "log_level must be debug, info, warn or error."
  }
  validation {
    condition     = var.log_level != "error" || var.metrics_sidecar_image != ""
    error_message = "log_level = \"error\" needs metrics_sidecar_image: without a collector the alert on events that do not leave looks for a line of the level warn, which would not be written."
  }
}

variable "retention_days" {
  description = "For how many days a subscription can be replayed, and video keeps the events that it has published."
  type        = number
  default     = 7

  validation {
    condition     = var.retention_days >= 1 && var.retention_days <= 31 && floor(var.retention_days) == var.retention_days
    error_message = "retention_days must be a whole number from 1 to 31, which is the most that Pub/Sub keeps."
  }
}

variable "exactly_once" {
  description = "Pub/Sub's exactly-once delivery: fewer repeats, more latency. Effects are once either way."
  type        = bool
  default     = false
}

variable "notification_channels" {
  description = "Monitoring's notification channels for alerts: projects/PROJECT/notificationChannels/NUMBER. None: alerts show in the console only."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for channel in var.notification_channels : can(regex("^projects/[^/]+/notificationChannels/[^/]+$", channel))])
    error_message = "notification_channels must be projects/PROJECT/notificationChannels/NUMBER."
  }
}

variable "budget" {
  description = "A monthly budget of the project, in the currency of its billing account, which tells the billing account's administrators and email_channels at 50, 90 and 100 %; null is none. It stops nothing. email_channels: at most five notification channels of the type email, since Google refuses a budget with another type."
  type = object({
    billing_account = string
    amount          = number
    email_channels  = optional(list(string), [])
  })
  default = null

  validation {
    condition = alltrue([for b in var.budget[*] :
      can(regex("^[0-9A-F]{6}-[0-9A-F]{6}-[0-9A-F]{6}$", b.billing_account)) && b.amount >= 1 && floor(b.amount) == b.amount
    ])
    error_message = "budget must name a billing account such as 000000-AAAAAA-BBBBBB, and a whole amount."
  }
  validation {
    condition = alltrue([for b in var.budget[*] : length(b.email_channels) <= 5 && alltrue([
      for channel in b.email_channels : can(regex("^projects/[^/]+/notificationChannels/[^/]+$", channel))
    ])])
    error_message = "budget.email_channels must be at most five of projects/PROJECT/notificationChannels/NUMBER."
  }
}

variable "deletion_protection" {
  description = "Whether Terraform refuses to delete services, topics, subscriptions and the database."
  type        = bool
  default     = true
}
