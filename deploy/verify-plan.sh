#!/usr/bin/env bash
# Looks at a plan, as `terraform show -json` has it, before it is applied.
#
#   verify-plan.sh images PLAN       the images that it deploys are of $REGISTRY, by digest,
#                                    and were built by the workflow on main, which also
#                                    attested their SBOM: GitHub's attestations say so,
#                                    unless $PROVENANCE is "none".
#                                    $TOKEN signs in to the registry.
#   verify-plan.sh permissions PLAN  prints what the account that releases may not change,
#                                    and fails if there is anything: half of an apply is
#                                    done by the time that Google refuses the rest.
#   verify-plan.sh same SHOWN PLAN   both plans change the same things, to the same values.
set -euo pipefail

fail() {
  echo "$*" >&2
  exit 1
}

images() {
  local service image statement others
  # The containers of the plan itself, because the code of the module may name other images than the variables.
  # The collector's image has a digest: the variable demands it.
  others=$(jq -er '
    [.variables | .video.value.image, .catalog.value.image, .metrics_sidecar_image.value] as $known
    | [.resource_changes[]?.change.after | .. | objects | .image? | strings] - $known | unique | join(" ")' "$1")
  [ -z "$others" ] || fail "images that no variable names: $others"
  [ "$PROVENANCE" = none ] || docker login --username oauth2accesstoken --password-stdin "https://${REGISTRY%%/*}" <<<"$TOKEN"
  for service in video catalog; do
    image=$(jq -er ".variables.$service.value.image" "$1")
    [[ $image =~ ^"$REGISTRY/$service"@sha256:[0-9a-f]{64}$ ]] || fail "$service: $image is not $REGISTRY/$service@sha256:…"
    [ "$PROVENANCE" != none ] || continue
    for statement in https://slsa.dev/provenance/v1 https://cyclonedx.org/bom; do
      gh attestation verify "oci://$image" --repo "$GITHUB_REPOSITORY" --predicate-type "$statement" \
        --signer-workflow "$GITHUB_REPOSITORY/.github/workflows/ci.yml" --source-ref refs/heads/main --deny-self-hosted-runners ||
        fail "$service: no attestation of $statement that ci.yml on main made for $image"
    done
  done
}

# What roles/run.developer and the module's role for schemas allow.
permissions() {
  local others
  others=$(jq -er '
    [.resource_changes[]
      | select(.change.actions - ["no-op", "read"] != [])
      | select(.type | IN("google_cloud_run_v2_service", "google_cloud_run_v2_job", "google_cloud_run_v2_worker_pool", "terraform_data") | not)
      | select((.type == "google_pubsub_schema" and .change.actions == ["update"]) | not)
      | "- \(.change.actions | join(", ")) `\(.address)`"] | join("\n")' "$1")
  [ -z "$others" ] || {
    printf 'A person has to apply this plan, as the owner of the project: a release may not do this.\n\n%s\n' "$others"
    exit 1
  }
}

# Only what a plan changes: the number of a job's executions moves by itself.
changes() {
  jq -S '[.resource_changes[]
    | select(.change.actions - ["no-op", "read"] != [])
    | (.change.before // {}) as $before
    | {address, actions: .change.actions, to: ((.change.after // {}) | with_entries(select(.value != $before[.key])))}]
    | sort_by(.address)' "$1"
}

same() {
  local shown own
  shown=$(changes "$1")
  own=$(changes "$2")
  diff <(echo "$shown") <(echo "$own") ||
    fail "This is not the plan that was shown: the infrastructure has changed since, or the plan was not made from main. Run the workflow again."
}

case ${1:-} in
images | permissions) "$1" "$2" ;;
same) same "$2" "$3" ;;
*) fail "usage: verify-plan.sh images|permissions PLAN, or same SHOWN PLAN" ;;
esac
