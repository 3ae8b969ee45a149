#!/bin/sh
# Benchmarks of two commits, in turns, through benchstat: what the machine does
# meanwhile falls on both. HEAD means what is committed.
#   perf/bench-compare.sh REF [PACKAGES] [ROUNDS] [PATTERN]
set -eu
ref=${1:?a commit to compare HEAD with}
rounds=${3:-6}
pattern=${4:-.}
go=${GO:-go}
cd "$(git rev-parse --show-toplevel)"
work=$(mktemp -d)
trap 'git worktree remove --force "$work/ref" 2>/dev/null; git worktree remove --force "$work/head" 2>/dev/null; rm -rf "$work"; git worktree prune' EXIT
trap 'exit 1' INT TERM HUP
git worktree add -q --detach "$work/ref" "$ref"
git worktree add -q --detach "$work/head" HEAD
packages=${2:-$(git grep -l '^func Benchmark' HEAD -- '*_test.go' | sed 's|^HEAD:||; s|/[^/]*$||; s|^|./|' | sort -u)}
for side in ref head; do
  for p in $packages; do
    test -d "$work/$side/$p" || { echo "$p is not in $side: left out"; continue; }
    name=$(echo "$p" | tr ./ __)
    (cd "$work/$side" && $go test -c -o "$work/$name.$side" "$p") || exit 1
  done
done
bench() { # side, package
  bin=$work/$(echo "$2" | tr ./ __).$1
  test -x "$bin" || return 0
  (cd "$work/$1/$2" && "$bin" -test.run '^$' -test.bench "$pattern" -test.benchmem -test.benchtime "${BENCHTIME:-200ms}" -test.timeout 600s) >> "$work/$1.txt" ||
    { tail -20 "$work/$1.txt"; exit 1; }
}
i=0
while [ $i -lt "$rounds" ]; do
  for p in $packages; do
    if [ $((i % 2)) -eq 0 ]; then bench ref "$p"; bench head "$p"; else bench head "$p"; bench ref "$p"; fi
  done
  i=$((i + 1))
done
mv "$work/ref.txt" "$work/$(git rev-parse --short "$ref").txt"
mv "$work/head.txt" "$work/head-$(git rev-parse --short HEAD).txt"
$go tool benchstat "$work/$(git rev-parse --short "$ref").txt" "$work/head-$(git rev-parse --short HEAD).txt"
