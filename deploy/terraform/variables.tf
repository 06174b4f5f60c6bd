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
  description = "Where everything is. The order of a key holds within one region only, so publishers and messages stay in this one."
  type        = string
  default     = "europe-west1"

  validation {
    condition     = can(regex("^[a-z]+-[a-z]+[0-9]+$", var.region))
    error_message = "region must be a region such as europe-west1, not a zone or a multi-region."
  }
}

locals {
  # The least and the most MiB that Cloud Run takes with so many CPUs: whoever asks
  # for four gets no 512Mi.
  memory_for_cpu = {
    "1" = [512, 4096]
    "2" = [512, 8192]
    "4" = [2048, 16384]
    "6" = [4096, 24576]
    "8" = [4096, 32768]
  }
}

variable "video" {
  description = <<-EOT
    The service that owns videos.
    image: by digest. min_instances: at least 1, since the relay works between requests; 0 only with drain_schedule.
    max_instances: of all revisions together; each holds a pool of database connections.
    workers: further instances without an address, which only relay.
    drain_schedule: cron, in UTC, hourly or more often; a job that publishes what instances have left behind when
    they went to sleep.
  EOT
  type = object({
    image          = string
    min_instances  = optional(number, 1)
    max_instances  = optional(number, 4)
    concurrency    = optional(number, 80)
    cpu            = optional(string, "1")
    memory         = optional(string, "512Mi")
    workers        = optional(number, 0)
    drain_schedule = optional(string)
  })

  validation {
    condition     = can(regex("@sha256:[0-9a-f]{64}$", var.video.image))
    error_message = "video.image must be pinned by digest: …/video@sha256:… (a tag can be moved)."
  }
  validation {
    condition     = var.video.min_instances >= (var.video.drain_schedule == null ? 1 : 0)
    error_message = "video.min_instances must be at least 1, or 0 with a drain_schedule: without an instance no event leaves."
  }
  validation {
    condition     = var.video.max_instances >= max(1, var.video.min_instances) && var.video.max_instances <= 100
    error_message = "video.max_instances must be from min_instances to 100."
  }
  validation {
    condition     = var.video.concurrency >= 1 && var.video.concurrency <= 1000
    error_message = "video.concurrency must be from 1 to 1000."
  }
  validation {
    condition     = contains(["1", "2", "4", "6", "8"], var.video.cpu)
    error_message = "video.cpu must be 1, 2, 4, 6 or 8: with less than one, CPU cannot be always allocated."
  }
  validation {
    condition = try(alltrue([
      for mib in [tonumber(regex("^([0-9]+)[MG]i$", var.video.memory)[0]) * (endswith(var.video.memory, "Gi") ? 1024 : 1)] :
      mib >= local.memory_for_cpu[var.video.cpu][0] && mib <= local.memory_for_cpu[var.video.cpu][1]
    ]), false)
    error_message = "video.memory must go with video.cpu: 512Mi to 4Gi with 1, 512Mi to 8Gi with 2, 2Gi to 16Gi with 4, 4Gi to 24Gi with 6, 4Gi to 32Gi with 8."
  }
  validation {
    condition     = var.video.workers >= 0 && var.video.workers <= 100
    error_message = "video.workers must be from 0 to 100."
  }
  validation {
    condition     = var.video.drain_schedule == null || can(regex("^\\S+( \\S+){4}$", coalesce(var.video.drain_schedule, "x")))
    error_message = "video.drain_schedule must be five cron fields, such as */5 * * * *."
  }
}

variable "catalog" {
  description = <<-EOT
    The read model.
    image: by digest. min_instances: at least 1, since the consumer works between requests.
    max_instances: of all revisions together; each holds a pool of database connections.
    workers: further instances without an address, which only consume; Cloud Run does not scale on a backlog.
  EOT
  type = object({
    image         = string
    min_instances = optional(number, 1)
    max_instances = optional(number, 4)
    concurrency   = optional(number, 80)
    cpu           = optional(string, "1")
    memory        = optional(string, "512Mi")
    workers       = optional(number, 0)
  })

  validation {
    condition     = can(regex("@sha256:[0-9a-f]{64}$", var.catalog.image))
    error_message = "catalog.image must be pinned by digest: …/catalog@sha256:… (a tag can be moved)."
  }
  validation {
    condition     = var.catalog.min_instances >= 1
    error_message = "catalog.min_instances must be at least 1: without an instance no event arrives."
  }
  validation {
    condition     = var.catalog.max_instances >= var.catalog.min_instances && var.catalog.max_instances <= 100
    error_message = "catalog.max_instances must be from min_instances to 100."
  }
  validation {
    condition     = var.catalog.concurrency >= 1 && var.catalog.concurrency <= 1000
    error_message = "catalog.concurrency must be from 1 to 1000."
  }
  validation {
    condition     = contains(["1", "2", "4", "6", "8"], var.catalog.cpu)
    error_message = "catalog.cpu must be 1, 2, 4, 6 or 8: with less than one, CPU cannot be always allocated."
  }
  validation {
    condition = try(alltrue([
      for mib in [tonumber(regex("^([0-9]+)[MG]i$", var.catalog.memory)[0]) * (endswith(var.catalog.memory, "Gi") ? 1024 : 1)] :
      mib >= local.memory_for_cpu[var.catalog.cpu][0] && mib <= local.memory_for_cpu[var.catalog.cpu][1]
    ]), false)
    error_message = "catalog.memory must go with catalog.cpu: 512Mi to 4Gi with 1, 512Mi to 8Gi with 2, 2Gi to 16Gi with 4, 4Gi to 24Gi with 6, 4Gi to 32Gi with 8."
  }
  validation {
    condition     = var.catalog.workers >= 0 && var.catalog.workers <= 100
    error_message = "catalog.workers must be from 0 to 100."
  }
}

variable "log_level" {
  description = "Of both services."
  type        = string
  default     = "info"

  validation {
    condition     = contains(["debug", "info", "warn", "error"], var.log_level)
    error_message = "log_level must be debug, info, warn or error."
  }
}

variable "allow_unauthenticated" {
  description = "Whether everybody on the internet may call both APIs. The services do not ask who somebody is."
  type        = bool
  default     = false
}

variable "invokers" {
  description = "Who may call both APIs, such as user:me@example.com or serviceAccount:gateway@acme-prod.iam.gserviceaccount.com."
  type        = set(string)
  default     = []

  validation {
    condition     = alltrue([for member in var.invokers : can(regex("^(user|group|serviceAccount|domain|principal|principalSet):.+", member))])
    error_message = "invokers must be user:…, group:…, serviceAccount:…, domain:… or principal…; for everybody there is allow_unauthenticated."
  }
}

variable "retention_days" {
  description = "How long a subscription can be replayed, and how long video keeps events that it has published."
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

variable "transaction_pooler" {
  description = "Whether the connection secrets lead through a transaction pooler (Supabase: port 6543). LISTEN then needs secrets of its own."
  type        = bool
  default     = false
}

variable "secret_versions" {
  description = "Versions of secrets, by secret, such as { video-database-url = \"2\" }. The others are read in their latest version when an instance starts."
  type        = map(string)
  default     = {}

  validation {
    condition     = alltrue([for version in values(var.secret_versions) : can(regex("^[1-9][0-9]*$", version))])
    error_message = "secret_versions must be numbers, as text."
  }
  validation {
    condition     = alltrue([for name in keys(var.secret_versions) : can(regex("^(video|catalog)(-admin|-listen)?-database-url$", name))])
    error_message = "secret_versions knows video-database-url, video-admin-database-url, video-listen-database-url, and the same of catalog."
  }
}

variable "cloud_sql" {
  description = "A Postgres of Cloud SQL for both services; null is a Postgres elsewhere, such as Supabase. The connection secrets are needed either way."
  type = object({
    tier              = optional(string, "db-custom-1-3840")
    disk_gb           = optional(number, 10)
    high_availability = optional(bool, false)
  })
  default = null

  validation {
    condition     = var.cloud_sql == null || can(regex("^db-", var.cloud_sql.tier))
    error_message = "cloud_sql.tier must be a machine type of Cloud SQL, such as db-custom-1-3840."
  }
  validation {
    condition     = var.cloud_sql == null || try(var.cloud_sql.disk_gb >= 10, false)
    error_message = "cloud_sql.disk_gb must be at least 10."
  }
}

variable "network" {
  description = "Direct VPC egress to private addresses, for a database in a VPC; null is none. The subnetwork needs two addresses for each instance: /26 or larger."
  type = object({
    network    = string
    subnetwork = string
  })
  default = null

  validation {
    condition     = alltrue([for n in var.network[*] : can(regex("^[^ ]+$", n.network)) && can(regex("^[^ ]+$", n.subnetwork))])
    error_message = "network must name both a network and a subnetwork of the region."
  }
}

variable "github_repository" {
  description = "OWNER/NAME whose GitHub workflows may push images, plan and, from the environment \"production\", release; null is none."
  type        = string
  default     = null

  validation {
    condition     = var.github_repository == null || can(regex("^[A-Za-z0-9-]+/[A-Za-z0-9._-]+$", coalesce(var.github_repository, "x")))
    error_message = "github_repository must be OWNER/NAME."
  }
}

variable "github_repository_id" {
  description = "That repository's number (gh api repos/OWNER/NAME --jq .id): a name may one day be somebody else's. Null checks the name alone."
  type        = string
  default     = null

  validation {
    condition     = var.github_repository_id == null || can(regex("^[0-9]+$", coalesce(var.github_repository_id, "x")))
    error_message = "github_repository_id must be a number, as text."
  }
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

variable "deletion_protection" {
  description = "Whether Terraform refuses to delete services, topics, subscriptions and the database."
  type        = bool
  default     = true
}
