# The server of MemoTree with its embedded PostgreSQL and Qdrant engine. See docs/how-to/deploy.md.
#
#   docker build --tag memotree .
#   docker run --network host --read-only --tmpfs /tmp --volume memotree:/data memotree

FROM python:3.13-slim-bookworm AS build
COPY . /source
RUN python -m venv /opt/memotree \
 && /opt/memotree/bin/pip install --no-cache-dir --disable-pip-version-check "/source[all]"

FROM python:3.13-slim-bookworm
# git is needed for backups and for combining packs. The base image pins Debian's release; a pinned version of git would
# fail to build after each security update.
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install --yes --no-install-recommends git \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --system --uid 10001 --user-group --home-dir /data --shell /usr/sbin/nologin memotree \
 && install --directory --owner memotree --group memotree --mode 0700 /data
COPY --from=build /opt/memotree /opt/memotree
ENV PATH=/opt/memotree/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    MEMOTREE_DATA=/data \
    MEMOTREE_LOG_FORMAT=json
USER 10001:10001
WORKDIR /data
VOLUME /data
# The server listens on loopback only, unless it has API keys and TLS: see docs/how-to/deploy.md.
EXPOSE 7319 7320
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=120s --retries=3 \
  CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:7320/readyz', timeout=4)"]
ENTRYPOINT ["memotree"]
CMD ["serve"]
