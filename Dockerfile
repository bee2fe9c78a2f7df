# The exporter and the demo training: docker build -t trainvitals:local .
# The tag is pinned by hand; pin a digest or a mirror with --build-arg PYTHON_IMAGE=python:3.12-slim@sha256:...
ARG PYTHON_IMAGE=python:3.12-slim

FROM ${PYTHON_IMAGE} AS build
# So that what an older builder leaves of this stage can be found and pruned.
LABEL io.trainvitals.stage="build"
# An empty address means pip's own default.
ARG PIP_INDEX_URL=
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY exporter exporter
RUN ["python", "-m", "venv", "/opt/trainvitals"]
# The folder and not the name: a package of this name from an index must never take its place.
RUN ["/opt/trainvitals/bin/python", "-m", "pip", "install", ".[node,demo,logs,notify]"]

FROM ${PYTHON_IMAGE}
LABEL org.opencontainers.image.title="trainvitals" \
      org.opencontainers.image.description="The vital signs of a training run: node exporter, notifier and demo training" \
      org.opencontainers.image.licenses="Apache-2.0"
# Trainings of any user write here, and none can remove another's files.  Its owner can: that is the exporter's cleaning.
RUN ["install", "--directory", "--mode=1777", "--owner=65532", "--group=65532", "/spool"]
# A new volume takes its owner from here.
RUN ["install", "--directory", "--mode=0700", "--owner=65532", "--group=65532", "/var/lib/trainvitals"]
COPY --from=build /opt/trainvitals /opt/trainvitals
COPY deploy/docker/healthcheck.py /opt/trainvitals/healthcheck.py
ENV PATH=/opt/trainvitals/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    TRAINVITALS_DIR=/spool
USER 65532:65532
WORKDIR /tmp
EXPOSE 20910
HEALTHCHECK --interval=15s --timeout=5s --start-period=20s --retries=3 \
    CMD ["python", "/opt/trainvitals/healthcheck.py"]
ENTRYPOINT ["trainvitals"]
CMD ["exporter"]
