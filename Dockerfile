# The one image of Myria: every command, and a PostgreSQL for `myria up` and for trials. It runs as a user without rights
# and with a read-only root file system; only /tmp is written to.
#
#   docker build --tag myria:0.1.0 --build-arg REVISION="$(git rev-parse HEAD)" .
#
# The steps are those of scripts/image_steps, so that `scripts/build_rootfs.py` can follow this file without a daemon.
# Nothing of the first stage but what is copied out of it reaches the image.
# The tag says what it is, the digest which one of them; docs/releasing.md says how it is renewed.
ARG BASE=python:3.11-slim@sha256:9c900dea9e8fb7e16277c179b555cc72d29a352dbc33cff48ad5a0412fd5bfc7

FROM ${BASE} AS build
WORKDIR /src
COPY scripts/image_steps scripts/image_steps
COPY scripts/sbom.py scripts/sbom.py
COPY requirements requirements
RUN sh scripts/image_steps tools /opt/build
RUN sh scripts/image_steps environment /opt/myria
COPY LICENSE NOTICE README.md pyproject.toml ./
COPY examples examples
COPY migrations migrations
COPY core core
COPY server server
COPY operator operator
COPY builder_job builder_job
COPY rebuilds rebuilds
COPY monitoring monitoring
COPY embedded embedded
COPY cli cli
RUN sh scripts/image_steps program /opt/build /opt/myria
RUN sh scripts/image_steps strip /opt/myria
RUN sh scripts/image_steps compile /opt/myria
RUN sh scripts/image_steps sbom /opt/build /opt/myria
RUN sh scripts/image_steps account /opt/account

FROM ${BASE}
ARG BASE
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="myria" \
      org.opencontainers.image.description="Long-term memory for conversational agents" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="${BASE}"
COPY --from=build /opt/account/passwd /etc/passwd
COPY --from=build /opt/account/group /etc/group
COPY --from=build /opt/myria /opt/myria
# kopf and initdb need a name for the user, also where the platform chooses its number.
ENV PATH=/opt/myria/bin:/usr/local/bin:/usr/bin:/bin \
    USER=myria \
    HOME=/tmp \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1
WORKDIR /tmp
USER 10001:10001
EXPOSE 8321
ENTRYPOINT ["myria"]
CMD ["--help"]
