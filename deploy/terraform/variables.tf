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

locals {
  # The least and the most MiB that Cloud Run accepts for a number of CPUs: four CPUs
  # with 512Mi are refused.
  memory_for_cpu = {
    "1" = [512, 4096]
    "2" = [512, 8192]
    "4" = [2048, 16384]
    "6" = [4096, 24576]
    "8" = [4096, 32768]
  }

  # The remaining tenth of the memory is for memory that Go's runtime does not count.
  memory_limit = {
    for name, memory in { video = var.video.memory, catalog = var.catalog.memory, job = "512Mi" } :
    name => "${floor(0.9 * tonumber(regex("^[0-9]+", memory)) * (endswith(memory, "Gi") ? 1024 : 1))}MiB"
  }

  job_limits = { cpu = "1", memory = "512Mi" }

  # Health, readiness and metrics: Cloud Run routes requests from outside to the port of
  # the API only, and its probes reach both.
  admin_port = 8081

  # The callers whose requests reach a service at all, in Cloud Run's own terms.
  ingress = {
    all                               = "INGRESS_TRAFFIC_ALL"
    internal                          = "INGRESS_TRAFFIC_INTERNAL_ONLY"
    internal-and-cloud-load-balancing = "INGRESS_TRAFFIC_INTERNAL_LOAD_BALANCER"
  }

  # How a service tells its end users apart.
  users_env = { AUTH_ISSUER = var.auth_issuer, AUTH_AUDIENCE = var.auth_audience }
  open_env  = { EVERYBODY_MAY_WRITE = "true" }

  # Where the images are. Only CI's own workflow and a person push there.
  images = "${var.region}-docker.pkg.dev/${var.project_id}/lockstep"
}

variable "video" {
  description = <<-EOT
    The service that owns videos.
    image: by digest, from the module's own registry. invokers: who may call it besides catalog; public: every
    caller, who still has to sign in to write. everybody_may_write: users need not sign in, and every caller may
    write everything; not together with public. ingress: all, internal (network, project and VPC only, which catalog
    then needs network for) or internal-and-cloud-load-balancing. min_instances: at least 1, since the relay works between requests; 0 only with drain_schedule.
    max_instances: of all revisions together; each holds a pool of database connections.
    workers: further instances without an address, which only relay.
    drain_schedule: cron, in UTC, hourly or more often; a job that publishes the events that instances have left behind when
    they went to sleep.
  EOT
  type = object({
    image               = string
    public              = optional(bool, false)
    invokers            = optional(set(string), [])
    everybody_may_write = optional(bool, false)
    ingress             = optional(string, "all")
    min_instances       = optional(number, 1)
    max_instances       = optional(number, 3)
    concurrency         = optional(number, 80)
    cpu                 = optional(string, "1")
    memory              = optional(string, "512Mi")
    workers             = optional(number, 0)
    drain_schedule      = optional(string)
  })

  validation {
    condition     = startswith(var.video.image, "${local.images}/video@sha256:") && can(regex("@sha256:[0-9a-f]{64}$", var.video.image))
    error_message = "video.image must be of the module's own registry, and pinned by digest: ${local.images}/video@sha256:… (a tag can be moved)."
  }
  validation {
    condition     = alltrue([for member in var.video.invokers : can(regex("^(user|group|serviceAccount|domain|principal|principalSet):.+", member))])
    error_message = "video.invokers must be user:…, group:…, serviceAccount:…, domain:… or principal…; for every caller there is video.public."
  }
  validation {
    condition     = !(var.video.public && var.video.everybody_may_write)
    error_message = "video.public needs users who sign in: with everybody_may_write the whole internet could change every video."
  }
  validation {
    condition     = contains(keys(local.ingress), var.video.ingress)
    error_message = "video.ingress must be all, internal or internal-and-cloud-load-balancing."
  }
  validation {
    condition     = var.video.ingress == "all" || var.network != null
    error_message = "video.ingress other than all needs network: catalog calls video, and without a network its calls come from outside."
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
    image: by digest, from the module's own registry. invokers: who may call it; public: every caller, who still has to
    sign in to read. everybody_may_write: users need not sign in, and every caller may read everything; not together with
    public. ingress: all, internal or internal-and-cloud-load-balancing. concurrency:
    half of it may wait for a fresh read, the other half is for those that need not. min_instances: at least 1, since the consumer works between requests.
    max_instances: of all revisions together; each holds a pool of database connections.
    workers: further instances without an address, which only consume; Cloud Run does not scale on a backlog.
  EOT
  type = object({
    image               = string
    public              = optional(bool, false)
    invokers            = optional(set(string), [])
    everybody_may_write = optional(bool, false)
    ingress             = optional(string, "all")
    min_instances       = optional(number, 1)
    max_instances       = optional(number, 3)
    concurrency         = optional(number, 1000)
    cpu                 = optional(string, "1")
    memory              = optional(string, "512Mi")
    workers             = optional(number, 0)
  })

  validation {
    condition     = startswith(var.catalog.image, "${local.images}/catalog@sha256:") && can(regex("@sha256:[0-9a-f]{64}$", var.catalog.image))
    error_message = "catalog.image must be of the module's own registry, and pinned by digest: ${local.images}/catalog@sha256:… (a tag can be moved)."
  }
  validation {
    condition     = alltrue([for member in var.catalog.invokers : can(regex("^(user|group|serviceAccount|domain|principal|principalSet):.+", member))])
    error_message = "catalog.invokers must be user:…, group:…, serviceAccount:…, domain:… or principal…; for every caller there is catalog.public."
  }
  validation {
    condition     = !(var.catalog.public && var.catalog.everybody_may_write)
    error_message = "catalog.public needs users who sign in: with everybody_may_write the whole internet could read what every user has done."
  }
  validation {
    condition     = contains(keys(local.ingress), var.catalog.ingress)
    error_message = "catalog.ingress must be all, internal or internal-and-cloud-load-balancing."
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
    condition     = var.catalog.concurrency >= 2 && var.catalog.concurrency <= 1000
    error_message = "catalog.concurrency must be from 2 to 1000: half of it may wait."
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

variable "auth_issuer" {
  description = "The OpenID Connect issuer of the end users, letter by letter as their tokens name it (iss), also where that ends with a slash: https://REF.supabase.co/auth/v1, https://securetoken.google.com/PROJECT. Null only where both services have everybody_may_write."
  type        = string

  validation {
    condition     = var.auth_issuer == null || can(regex("^https://[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]+)?(/[^/?#@\\s]+)*/?$", coalesce(var.auth_issuer, "x")))
    error_message = "auth_issuer must be an https URL without user, query and fragment, such as https://issuer.example.com."
  }
  validation {
    condition     = var.auth_issuer != null || (var.video.everybody_may_write && var.catalog.everybody_may_write)
    error_message = "auth_issuer must be given: without one a service has no users, and starts only with everybody_may_write."
  }
}

variable "auth_audience" {
  description = "What the end users' tokens must be for (aud): authenticated for Supabase, the project for Identity Platform, the client's or the API's name elsewhere. Null together with auth_issuer."
  type        = string

  validation {
    condition     = var.auth_audience == null || can(regex("^[^\\s]+$", coalesce(var.auth_audience, " ")))
    error_message = "auth_audience must be a text without spaces."
  }
  validation {
    condition     = (var.auth_issuer == null) == (var.auth_audience == null)
    error_message = "auth_issuer and auth_audience belong together: a token of the issuer may be for another application."
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

variable "labels" {
  description = "Of everything that can have labels, such as for the costs of a team."
  type        = map(string)
  default     = { application = "lockstep" }

  validation {
    condition     = alltrue([for name, value in var.labels : can(regex("^[a-z][a-z0-9_-]{0,62}$", name)) && can(regex("^[a-z0-9_-]{0,63}$", value))])
    error_message = "labels must be of lower-case letters, digits, - and _, and their names begin with a letter."
  }
}

variable "binary_authorization" {
  description = "Whether the project's policy of Binary Authorization decides which images run. The policy is the organization's to make."
  type        = bool
  default     = false
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
  description = "Versions of secrets, by secret, such as { video-database-url = \"2\" }. Of the others it is the first, so that a version that is only added changes nothing before it is named here."
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
  description = <<-EOT
    A Postgres of Cloud SQL for both services; null is a Postgres elsewhere, such as Supabase. The connection secrets
    are needed either way.
    max_connections: the limit of Postgres; a change restarts it. Google gives 100 to 3.75 GiB of memory, and 400 to 7.5.
    disk_limit_gb: up to which the disk grows by itself, ten times disk_gb if it is not given; it never shrinks.
    high_availability: a standby in another zone, for twice the price; without it a zone's outage is the pair's.
    maintenance: the day, 1 is Monday, and the hour in UTC at which Google may restart it.
  EOT
  type = object({
    tier              = optional(string, "db-custom-1-3840")
    max_connections   = optional(number, 100)
    disk_gb           = optional(number, 10)
    disk_limit_gb     = optional(number)
    high_availability = optional(bool, false)
    maintenance       = optional(object({ day = number, hour = number }), { day = 7, hour = 3 })
  })
  default = null

  validation {
    condition     = var.cloud_sql == null || can(regex("^db-", var.cloud_sql.tier))
    error_message = "cloud_sql.tier must be a machine type of Cloud SQL, such as db-custom-1-3840."
  }
  validation {
    condition     = var.cloud_sql == null || try(var.cloud_sql.max_connections >= local.connections, false)
    error_message = "cloud_sql.max_connections must be at least ${local.connections}: ten of each instance that may run at once, and ${local.other_connections} of others. Fewer max_instances or workers need fewer, more connections a larger tier."
  }
  validation {
    condition     = var.cloud_sql == null || try(var.cloud_sql.disk_gb >= 10, false)
    error_message = "cloud_sql.disk_gb must be at least 10."
  }
  validation {
    condition     = try(var.cloud_sql.disk_limit_gb, null) == null || try(var.cloud_sql.disk_limit_gb >= var.cloud_sql.disk_gb, false)
    error_message = "cloud_sql.disk_limit_gb must be at least disk_gb."
  }
  validation {
    condition = alltrue([for sql in var.cloud_sql[*] :
      contains(range(1, 8), sql.maintenance.day) && contains(range(24), sql.maintenance.hour)
    ])
    error_message = "cloud_sql.maintenance must be a day from 1 to 7 and an hour from 0 to 23."
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
  description = "OWNER/NAME whose GitHub workflows may plan and, if they are ci.yml on main, push images and, from the environment \"production\", release; null is none."
  type        = string
  default     = null

  validation {
    condition     = var.github_repository == null || can(regex("^[A-Za-z0-9-]+/[A-Za-z0-9._-]+$", coalesce(var.github_repository, "x")))
    error_message = "github_repository must be OWNER/NAME."
  }
}

variable "github_repository_id" {
  description = "That repository's number (gh api repos/OWNER/NAME --jq .id): a name may pass to another owner."
  type        = string
  default     = null

  validation {
    condition     = var.github_repository_id == null || can(regex("^[0-9]+$", coalesce(var.github_repository_id, "x")))
    error_message = "github_repository_id must be a number, as text."
  }
  validation {
    condition     = (var.github_repository == null) == (var.github_repository_id == null)
    error_message = "github_repository and github_repository_id belong together."
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

variable "budget" {
  description = "A monthly budget of the project, which tells notification_channels and the billing account's administrators at 50, 90 and 100 %; null is none. It stops nothing."
  type = object({
    billing_account = string
    amount          = number
    currency        = optional(string, "USD")
  })
  default = null

  validation {
    condition = alltrue([for b in var.budget[*] :
      can(regex("^[0-9A-F]{6}-[0-9A-F]{6}-[0-9A-F]{6}$", b.billing_account)) && b.amount >= 1 && floor(b.amount) == b.amount && can(regex("^[A-Z]{3}$", b.currency))
    ])
    error_message = "budget must name a billing account such as 000000-AAAAAA-BBBBBB, a whole amount, and a currency of three letters."
  }
}

variable "deletion_protection" {
  description = "Whether Terraform refuses to delete services, topics, subscriptions and the database."
  type        = bool
  default     = true
}
