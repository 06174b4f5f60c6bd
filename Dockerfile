# The images of both services: `docker build --target video .`, `--target catalog`.
# Each is one static binary on a base without a shell, for a user without rights and
# a file system without writes. `--target dev` is the launcher, for
# docker-compose.yml alone. `--target localpubsub` is a local Pub/Sub, for tests in any language.
#
# The base images are arguments: take them from a mirror, and by digest where a
# moved tag must not matter (--build-arg GO_IMAGE=golang@sha256:…).
ARG GO_IMAGE=golang:1.26.8-bookworm
ARG BASE_IMAGE=gcr.io/distroless/static-debian12:nonroot

# On the machine's own architecture, for the image's.
FROM --platform=${BUILDPLATFORM} ${GO_IMAGE} AS sources
WORKDIR /src
# For modules that come from elsewhere; unset, Go's own defaults hold.
ARG GOPROXY
ARG GOSUMDB
ENV CGO_ENABLED=0 GOTOOLCHAIN=local GOFLAGS=-buildvcs=false GOMODCACHE=/cache/modules GOCACHE=/cache/build
COPY . .

FROM sources AS build
ARG TARGETOS
ARG TARGETARCH
ARG REVISION=unknown
# One compilation for all: what the binaries share is most of it.
RUN --mount=type=cache,target=/cache \
    GOOS=${TARGETOS} GOARCH=${TARGETARCH} go build -trimpath -ldflags="-s -w -X example.com/lockstep/internal/command.revision=${REVISION}" -o /out/ ./services/video/cmd/video ./services/catalog/cmd/catalog ./cmd/dev && \
    deploy/licenses.sh /out/licenses ./services/video/cmd/video ./services/catalog/cmd/catalog ./cmd/dev

# Without gRPC's page of traces the binary is a fifth smaller.
FROM sources AS build-localpubsub
ARG TARGETOS
ARG TARGETARCH
RUN --mount=type=cache,target=/cache \
    GOOS=${TARGETOS} GOARCH=${TARGETARCH} go -C localpubsub build -tags=grpcnotrace -trimpath -ldflags="-s -w" -o /out/ ./cmd/localpubsub && \
    cd localpubsub && ../deploy/licenses.sh /out/licenses ./cmd/localpubsub

FROM ${BASE_IMAGE} AS service
# A checkout under umask 077 has files that only its owner reads.
COPY --chmod=755 deploy/certificates /etc/lockstep/certificates
USER 65532:65532
EXPOSE 8080
STOPSIGNAL SIGTERM
ARG REVISION=unknown
ARG SOURCE=unknown
LABEL org.opencontainers.image.version="v0.1.0" \
      org.opencontainers.image.revision=${REVISION} \
      org.opencontainers.image.source=${SOURCE} \
      org.opencontainers.image.licenses="Apache-2.0"

FROM service AS video
LABEL org.opencontainers.image.title="lockstep video" \
      org.opencontainers.image.description="owns videos, and publishes their events"
COPY --from=build /out/licenses /licenses
COPY --from=build /out/video /usr/local/bin/video
HEALTHCHECK --interval=5s --timeout=4s --start-period=30s CMD ["/usr/local/bin/video", "health"]
ENTRYPOINT ["/usr/local/bin/video"]

FROM service AS catalog
LABEL org.opencontainers.image.title="lockstep catalog" \
      org.opencontainers.image.description="reads videos, as fresh as the reader asks"
COPY --from=build /out/licenses /licenses
COPY --from=build /out/catalog /usr/local/bin/catalog
HEALTHCHECK --interval=5s --timeout=4s --start-period=30s CMD ["/usr/local/bin/catalog", "health"]
ENTRYPOINT ["/usr/local/bin/catalog"]

FROM ${BASE_IMAGE} AS dev
USER 65532:65532
LABEL org.opencontainers.image.title="lockstep dev" \
      org.opencontainers.image.description="provisions a local Pub/Sub; not for production" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /out/licenses /licenses
COPY --from=build /out/dev /usr/local/bin/dev
ENTRYPOINT ["/usr/local/bin/dev"]

FROM ${BASE_IMAGE} AS localpubsub
USER 65532:65532
EXPOSE 8085
STOPSIGNAL SIGTERM
LABEL org.opencontainers.image.version="v0.1.0" \
      org.opencontainers.image.title="localpubsub" \
      org.opencontainers.image.description="a local Google Cloud Pub/Sub with faults; not for production" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build-localpubsub /out/licenses /licenses
COPY --from=build-localpubsub /out/localpubsub /usr/local/bin/localpubsub
ENTRYPOINT ["/usr/local/bin/localpubsub", "--addr", "0.0.0.0:8085"]
