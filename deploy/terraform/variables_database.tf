# The database: where it is, how large, and the versions of its connection secrets.

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
    condition     = var.cloud_sql == null || can(regex("^db-custom-[0-9]+-[0-9]+$", var.cloud_sql.tier))
    error_message = "cloud_sql.tier must be db-custom-CPUS-MIB, such as db-custom-1-3840. Postgres of the edition Enterprise has db-f1-micro and db-g1-small, too, but their memory is not enough for max_connections."
  }
  validation {
    condition = alltrue([
      for machine in [for found in regexall("^db-custom-([0-9]+)-([0-9]+)$", try(var.cloud_sql.tier, "")) : { cpus = tonumber(found[0]), mib = tonumber(found[1]) }] :
      contains(concat([1], range(2, 97, 2)), machine.cpus) && machine.mib % 256 == 0 &&
      machine.mib >= 3840 && 10 * machine.mib >= 9216 * machine.cpus && machine.mib <= 6656 * machine.cpus
    ])
    error_message = "cloud_sql.tier must be of 1 CPU or an even number of CPUs up to 96, and of 0.9 to 6.5 GiB for each CPU: at least 3840 MiB, and a multiple of 256."
  }
  validation {
    condition     = var.cloud_sql == null || try(var.cloud_sql.max_connections >= local.connections, false)
    error_message = "cloud_sql.max_connections must be at least ${local.connections}: ten of each instance that may run at once, and ${local.other_connections} of others. Fewer max_instances or workers need fewer, more connections a larger tier."
  }
  validation {
    condition = alltrue(flatten([for sql in var.cloud_sql[*] : [
      for count in concat([sql.max_connections, sql.disk_gb], sql.disk_limit_gb[*]) : floor(count) == count
    ]]))
    error_message = "cloud_sql.max_connections, disk_gb and disk_limit_gb must be whole numbers."
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

variable "transaction_pooler" {
  description = "Whether the connection secrets lead through a transaction pooler (Supabase: port 6543). LISTEN then needs secrets of its own, video-listen-database-url and catalog-listen-database-url, which step 7 of README.md fills; with cloud_sql, too."
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
