# The two services, and what Cloud Run requires of them.

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

  # What is the same for both.
  deployment = {
    region                = var.region
    labels                = var.labels
    network               = var.network
    transaction_pooler    = var.transaction_pooler
    secret_versions       = var.secret_versions
    metrics_sidecar_image = var.metrics_sidecar_image
    binary_authorization  = var.binary_authorization
    deletion_protection   = var.deletion_protection
  }

  # The callers whose requests reach a service at all, in Cloud Run's own terms.
  ingress = {
    all                               = "INGRESS_TRAFFIC_ALL"
    internal                          = "INGRESS_TRAFFIC_INTERNAL_ONLY"
    internal-and-cloud-load-balancing = "INGRESS_TRAFFIC_INTERNAL_LOAD_BALANCER"
  }

  # How a service tells its end users apart.
  users_env = merge({ AUTH_ISSUER = var.auth_issuer, AUTH_AUDIENCE = var.auth_audience },
  var.auth_tenant_claim == null ? {} : { AUTH_TENANT_CLAIM = var.auth_tenant_claim })
  open_env = { EVERYBODY_MAY_WRITE = "true" }

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
    max_instances: of all revisions together; Cloud Run may exceed it for a short time. Each holds a pool of database connections.
    workers: further instances without an address, which only relay.
    extra_environment: OpenTelemetry's variables, OTEL_…, of service and workers; no secrets.
    flags: further flags of serve by their names, such as cors-origin, for service and workers.
    canary_seconds: how often a synthetic video is changed, which measures the time to visibility; 0: never. With
    metrics_sidecar_image only, which collects the measurement.
    drain_schedule: cron, in UTC, hourly or more often, so that only minutes differ from *, and not more often than every 5 minutes, which a drain may take; a job that publishes the events that instances have left behind when
    they went to sleep.
  EOT
  type = object({
    image               = string
    public              = optional(bool, false)
    invokers            = optional(set(string), [])
    everybody_may_write = optional(bool, false)
    ingress             = optional(string, "all")
    min_instances       = optional(number, 1)
    max_instances       = optional(number, 2)
    concurrency         = optional(number, 80)
    cpu                 = optional(string, "1")
    memory              = optional(string, "512Mi")
    workers             = optional(number, 0)
    extra_environment   = optional(map(string), {})
    flags               = optional(map(string), {})
    canary_seconds      = optional(number, 0)
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
    condition = alltrue([
      for count in [var.video.min_instances, var.video.max_instances, var.video.concurrency, var.video.workers] : floor(count) == count
    ])
    error_message = "video.min_instances, max_instances, concurrency and workers must be whole numbers."
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
    condition     = alltrue([for name in keys(var.video.extra_environment) : can(regex("^OTEL_[A-Z0-9_]+$", name))])
    error_message = "video.extra_environment is for OpenTelemetry's variables, OTEL_…: the module sets all others."
  }
  validation {
    condition     = alltrue([for name in keys(var.video.flags) : can(regex("^[a-z]+(-[a-z]+)*$", name)) && !contains(["outbox-retention", "canary-interval"], name)])
    error_message = "video.flags has flags of serve without dashes in front, such as cors-origin: retention_days and canary_seconds set outbox-retention and canary-interval."
  }
  validation {
    condition     = var.video.workers >= 0 && var.video.workers <= 100
    error_message = "video.workers must be from 0 to 100."
  }
  validation {
    condition     = var.video.canary_seconds == 0 || contains(range(1, 61), var.video.canary_seconds)
    error_message = "video.canary_seconds must be from 1 to 60, or 0."
  }
  validation {
    condition     = var.video.canary_seconds == 0 || var.metrics_sidecar_image != ""
    error_message = "video.canary_seconds needs metrics_sidecar_image: without it nothing collects what the canary measures."
  }
  validation {
    condition     = var.video.drain_schedule == null || can(regex("^(\\*/([5-9]|[1-5][0-9])|[0-5]?[0-9](,[0-5]?[0-9])*)( \\*){4}$", coalesce(var.video.drain_schedule, "x")))
    error_message = "video.drain_schedule must be minutes and four *, such as */5 * * * *: */N from 5 on, or numbers from 0 to 59 with commas between them. A drain may take 5 minutes, so more often the next one would begin before the end of one that waits for Pub/Sub. Less often than hourly, the alert on a drain that is silent would fire."
  }
}

variable "catalog" {
  description = <<-EOT
    The read model.
    image: by digest, from the module's own registry. invokers: who may call it; public: every caller, who still has to
    sign in to read. everybody_may_write: users need not sign in, and every caller may read everything; not together with
    public. ingress: all, internal or internal-and-cloud-load-balancing. concurrency:
    half of it may wait for a fresh read, the other half is for those that need not. min_instances: at least 1, since the consumer works between requests.
    max_instances: of all revisions together; Cloud Run may exceed it for a short time. Each holds a pool of database connections.
    workers: further instances without an address, which only consume; Cloud Run does not scale on a backlog.
    extra_environment: OpenTelemetry's variables, OTEL_…, of service and workers; no secrets.
    flags: further flags of serve by their names, such as cors-origin, for service and workers.
  EOT
  type = object({
    image               = string
    public              = optional(bool, false)
    invokers            = optional(set(string), [])
    everybody_may_write = optional(bool, false)
    ingress             = optional(string, "all")
    min_instances       = optional(number, 1)
    max_instances       = optional(number, 2)
    concurrency         = optional(number, 1000)
    cpu                 = optional(string, "1")
    memory              = optional(string, "512Mi")
    workers             = optional(number, 0)
    extra_environment   = optional(map(string), {})
    flags               = optional(map(string), {})
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
    condition = alltrue([
      for count in [var.catalog.min_instances, var.catalog.max_instances, var.catalog.concurrency, var.catalog.workers] : floor(count) == count
    ])
    error_message = "catalog.min_instances, max_instances, concurrency and workers must be whole numbers."
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
    condition     = alltrue([for name in keys(var.catalog.extra_environment) : can(regex("^OTEL_[A-Z0-9_]+$", name))])
    error_message = "catalog.extra_environment is for OpenTelemetry's variables, OTEL_…: the module sets all others."
  }
  validation {
    condition     = alltrue([for name in keys(var.catalog.flags) : can(regex("^[a-z]+(-[a-z]+)*$", name)) && !contains(["max-waiting-reads"], name)])
    error_message = "catalog.flags has flags of serve without dashes in front, such as cors-origin: concurrency sets max-waiting-reads."
  }
  validation {
    condition     = var.catalog.workers >= 0 && var.catalog.workers <= 100
    error_message = "catalog.workers must be from 0 to 100."
  }
}
