variable "name" {
  description = "The service's name, with which the names of its accounts, its secrets and its jobs begin."
  type        = string
}

variable "deployment" {
  description = "The settings of the root module that are the same for each service."
  type = object({
    region                = string
    labels                = map(string)
    network               = object({ network = string, subnetwork = string })
    transaction_pooler    = bool
    secret_versions       = map(string)
    metrics_sidecar_image = string
    binary_authorization  = bool
    deletion_protection   = bool
  })
}

variable "settings" {
  description = "The variable of the root module with the service's name, which also checks the values."
  type = object({
    image         = string
    public        = bool
    invokers      = set(string)
    min_instances = number
    max_instances = number
    concurrency   = number
    cpu           = string
    memory        = string
    workers       = number
  })
}

variable "ingress" {
  description = "The callers whose requests reach the service at all, in Cloud Run's own terms. IAM decides which of them are let in."
  type        = string
}

variable "custom_audiences" {
  description = "Audiences of callers' ID tokens, besides the service's address."
  type        = list(string)
  default     = null
}

variable "args" {
  description = "Arguments of the service and of its workers."
  type        = list(string)
}

variable "env" {
  description = "Environment of the service and of its workers. The module adds GOMEMLIMIT, and the connections from the secrets."
  type        = map(string)
}

variable "jobs" {
  description = <<-EOT
    The jobs besides that of the migrations, by name. They run the service's image, and begin only when a person or a
    schedule starts them. owner: as the owner of the schema, with its connection, and not as the service.
  EOT
  type = map(object({
    args    = list(string)
    timeout = string
    env     = map(string)
    owner   = optional(bool, false)
  }))
}

variable "sql_instances" {
  description = "The Cloud SQL instance, mounted below /cloudsql in each container: a list of one, or an empty one. Apart from deployment, so that the secrets do not wait for it."
  type        = list(string)
}

variable "database" {
  description = "What has to be there before a migration reaches the database."
  type        = any
}

variable "before" {
  description = "What has to be there, and up to date, before the service."
  type        = any
}
