# book: the pages of docs as a book in target/book; links lead somewhere; tutorials run as printed
book=$PWD/target/book-tools
[ -x "$book/bin/python" ] || python3 -m venv "$book"
python3 ci/links.py
cargo build --release --locked --quiet -p sublet-cli
mkdir -p docs/reference
{
    echo "# The command line"
    for command in plan fit sweep verify check compare stats doctor convert generate completions man; do
        printf '\n## sublet %s\n\n```text\n' "$command"
        COLUMNS=100 target/release/sublet "$command" --help
        echo '```'
    done
} > docs/reference/cli.md
python3 ci/reference.py
if timeout 600 "$book/bin/pip" install --quiet --disable-pip-version-check mkdocs-material==9.6.23; then
    "$book/bin/mkdocs" build --quiet --strict
else
    echo "skipped: the book, for mkdocs-material cannot be installed here"
fi
python3 ci/tutorial.py docs/tutorials/trace.md docs/tutorials/cpp.md
# The package is built as the stage `python` has built it. The stages `tflm`, `torch` and `ggml` run the tutorials that need their packages.
CARGO_TARGET_DIR=$PWD/target/python-build python3 ci/tutorial.py docs/tutorials/python.md
