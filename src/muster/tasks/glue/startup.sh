# Runs the hooks of the cluster and of the context directory, and then becomes the program.
glue=${0%/*}
set -e
for hook in "$glue/startup-hook.sh" ./startup-hook.sh; do
    if [ -f "$hook" ]; then . "$hook"; fi
done
set +e
exec "$@"
