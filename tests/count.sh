#!/usr/bin/env bash
# Counts code lines of each folder, error types, public types and words of documents, beside their
# budgets (tests/tidy/budgets.csv) and the goals.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec cargo test --locked --quiet --test tidy -- --exact folders_keep_their_budgets --nocapture
