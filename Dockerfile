# The controller's image. BASE is any Linux image with Python 3.11 or later as `python3`, its venv module included.
ARG BASE=python:3.13-slim

FROM ${BASE} AS build
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY apis apis
COPY controller controller
RUN python3 -m venv /opt/ebb \
 && /opt/ebb/bin/pip install --no-cache-dir --disable-pip-version-check --constraint constraints.txt .

FROM ${BASE}
COPY --from=build /opt/ebb /opt/ebb
ENV PATH=/opt/ebb/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 65532:65532
EXPOSE 8080
ENTRYPOINT ["ebb"]
CMD ["run"]
