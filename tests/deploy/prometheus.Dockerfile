# Debian's Prometheus, for machines that cannot pull the official image.
ARG BASE_IMAGE=debian:bookworm-slim
FROM ${BASE_IMAGE}
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install -y --no-install-recommends prometheus \
 && rm -rf /var/lib/apt/lists/* \
 && install -d -o nobody /prometheus
USER 65534
ENTRYPOINT ["/usr/bin/prometheus"]
