# The gateway: `docker build -t pandora-router .`, then see docs/container.md.
# The image runs as a user without rights on a read-only root; only /tmp and /data are written.
FROM python:3.11-slim AS build
COPY . /src
RUN python -m venv /app \
 && /app/bin/pip install --no-cache-dir -c /src/constraints.txt '/src[serve,postgres]'
# the compiled searches are kept in the image; a processor of another kind compiles them again at the start
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends libgomp1 \
 && NUMBA_CACHE_DIR=/app/kernels /app/bin/pandora warm && chmod -R a+rX /app/kernels

FROM python:3.11-slim
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends libgomp1 \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --system --uid 10001 --no-create-home --home-dir /tmp pandora \
 && install -d -o 10001 -g 10001 /data
COPY --from=build /app /app
ENV PATH=/app/bin:$PATH NUMBA_CACHE_DIR=/app/kernels HOME=/tmp PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
WORKDIR /data
VOLUME ["/data"]
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s \
  CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8080/readyz', timeout=4)"]
CMD ["pandora", "serve", "/config/pandora.yaml", "--host", "0.0.0.0", "--port", "8080"]
