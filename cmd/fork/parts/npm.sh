# Needed by the check of the TypeScript client.
if command -v npm >/dev/null; then
  step "npm is here"
elif command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
  step "install npm"
  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends npm ||
    echo "no package of npm; the TypeScript client is not compiled"
fi
