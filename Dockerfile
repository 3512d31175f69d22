# The content of `make image`, for where Docker or Podman exists: docker build --tag localhost/orrery:dev .
FROM docker.io/library/rust:1.95-slim-bookworm AS build
RUN apt-get update && apt-get install --yes --no-install-recommends musl-tools && \
    rustup target add "$(uname -m)-unknown-linux-musl"
WORKDIR /orrery
COPY . .
# Where crates were is no part of the programs.
RUN export RUSTFLAGS="--remap-path-prefix=$CARGO_HOME=/cargo" target="$(uname -m)-unknown-linux-musl" && \
    cargo build --locked --release --target "$target" \
      $(while read -r package binary; do echo "--package $package --bin $binary"; done < e2e/image/binaries) && \
    while read -r package binary; do \
      install -D -m 755 "target/$target/release/$binary" "/image/usr/bin/$binary" || exit 1; \
    done < e2e/image/binaries && \
    cp -r e2e/image/files/. /image/

FROM scratch
ARG VERSION=0.1.0
ARG REVISION=unknown
ARG CREATED=1970-01-01T00:00:00Z
LABEL org.opencontainers.image.title="orrery" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION" \
      org.opencontainers.image.created="$CREATED" \
      org.opencontainers.image.source="https://github.com/orrery-dev/orrery" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /image/ /
ENV PATH=/usr/bin
USER 65532:65532
ENTRYPOINT ["/usr/bin/orrery-operator"]
