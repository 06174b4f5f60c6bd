#!/usr/bin/env bash
# Checks the module of this folder without an account: its form, its validity by the provider's own
# schema, and its tests with mocked answers. It works on a copy without lock file, values and state.
# The provider is that of `make tf-provider`, else Terraform's registry has it. With -optional, a
# machine without Terraform or the provider skips what needs them.
set -euo pipefail
CDPATH="" cd "$(dirname "$0")/.."

optional=
case "${1:-}" in
  "") ;;
  -optional) optional=1 ;;
  *)
    echo "tf-check: unknown argument $1; there is -optional" >&2
    exit 2
    ;;
esac

# missing ends the check: with a fault, unless it is optional.
missing() {
  if [ -n "$optional" ]; then
    echo "tf-check: skipped: $1" >&2
    exit 0
  fi
  echo "tf-check: $1" >&2
  exit 1
}

command -v terraform >/dev/null || missing "terraform is not installed"
terraform -chdir=terraform fmt -check -recursive -diff

copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
git ls-files --cached --others --exclude-standard | grep -vE '\.tfvars(\.json)?$|\.tfstate|/\.terraform' | tar -cf - -T - | tar -xf - -C "$copy"
export TF_IN_AUTOMATION=1 GOOGLE_OAUTH_ACCESS_TOKEN=none
if [ -x "${LOCKSTEP_TF_PLUGINS:-}/terraform-provider-google" ]; then
  export TF_CLI_CONFIG_FILE=$copy/terraform.tfrc
  cat >"$TF_CLI_CONFIG_FILE" <<CONFIG
disable_checkpoint = true
provider_installation {
  dev_overrides {
    "hashicorp/google" = "$LOCKSTEP_TF_PLUGINS"
  }
}
CONFIG
  terraform -chdir="$copy/terraform" get >/dev/null
else
  terraform -chdir="$copy/terraform" init -backend=false -input=false >/dev/null ||
    missing "the registry has no provider for this machine: make tf-provider"
fi
terraform -chdir="$copy/terraform" validate
terraform -chdir="$copy/terraform" test
