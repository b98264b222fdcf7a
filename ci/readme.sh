# readme: the commands of README.md, exactly as printed there, but for the tests, which `test` runs
awk '/^```sh$/ { inside = 1; next } /^```$/ && inside { exit } inside' README.md | while IFS= read -r line; do
    [ "$line" != "$tests" ] || continue
    echo "\$ $line"
    bash -euo pipefail -c "$line" < /dev/null
done
