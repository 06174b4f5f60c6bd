package auth

// Usage describes the variables of ReadConfig, for the usage texts of the services.
const Usage = `  AUTH_ISSUER            OpenID Connect issuer of the users' tokens; a local
                         process without it is open to every caller
  AUTH_AUDIENCE          what those tokens must be for
  AUTH_SERVICES          service accounts that may call as services: emails,
                         separated by commas
  AUTH_SERVICE_AUDIENCE  what their tokens must be for: the URL of this service
  AUTH_SERVICE_ISSUER    their issuer (https://accounts.google.com)
  EVERYBODY_MAY_WRITE    true: no authentication, in a process that is not local`
