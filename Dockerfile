# vmerge as a daemon in the foreground. Workflow files are expected in /etc/vmerge.
FROM python:3.12-slim

COPY pyproject.toml constraints.txt README.md LICENSE /src/
COPY src /src/src
RUN pip install --no-cache-dir --constraint /src/constraints.txt /src && rm -r /src

# The number is fixed, so that secrets can be given to this user alone (see docker-compose.yml).
RUN useradd --uid 10001 --user-group --no-create-home vmerge \
    && install --directory --owner=vmerge --group=vmerge --mode=700 /var/lib/vmerge
USER vmerge
ENV VMERGE_STATE_DIR=/var/lib/vmerge PYTHONUNBUFFERED=1
VOLUME /var/lib/vmerge

HEALTHCHECK --interval=10s --start-period=20s CMD ["vmerge", "daemon", "status"]
ENTRYPOINT ["vmerge"]
CMD ["daemon", "start", "--foreground", "/etc/vmerge"]
