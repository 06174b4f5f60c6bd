# The issuer of the end users, the GitHub repository that deploys, and the policy for
# images.

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

variable "auth_tenant_claim" {
  description = "The claim of the end users' tokens that names their tenant, with dots for claims inside of claims: app_metadata.tenant_id, firebase.tenant. Null: all users are of one tenant."
  type        = string
  default     = null

  validation {
    condition     = var.auth_tenant_claim == null || can(regex("^[^\\s.]+(\\.[^\\s.]+)*$", coalesce(var.auth_tenant_claim, " ")))
    error_message = "auth_tenant_claim must be names of claims, with dots between them."
  }
  validation {
    condition     = var.auth_tenant_claim == null || var.auth_issuer != null
    error_message = "auth_tenant_claim needs auth_issuer: it is a claim of its tokens."
  }
}

variable "github_repository" {
  description = "OWNER/NAME whose ci.yml, as it is on main, may plan, push images from the environment \"registry\" and release from the environment \"production\"; null is none."
  type        = string
  default     = null

  validation {
    condition     = var.github_repository == null || can(regex("^[A-Za-z0-9-]+/[A-Za-z0-9._-]+$", coalesce(var.github_repository, "x")))
    error_message = "github_repository must be OWNER/NAME."
  }
  # With it a token's subject has the environment and, in newer repositories, two numbers: Google
  # takes 127 characters.
  validation {
    condition     = length(coalesce(var.github_repository, "x")) <= 77
    error_message = "github_repository must have at most 77 characters: Google refuses tokens whose subject is longer than 127."
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

variable "binary_authorization" {
  description = "Whether the project's policy of Binary Authorization decides which images run. The policy is the organization's to make."
  type        = bool
  default     = false
}
