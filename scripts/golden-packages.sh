#!/usr/bin/env bash
# Prints the packages whose tests have an -update flag for golden files.
set -euo pipefail
cd "$(dirname "$0")/.."

grep -rlE --include='*_test.go' 'flag\.Bool\("update"|clitest\.(Golden|Update)' internal cmd dynamo 2>/dev/null |
	xargs -n1 dirname | sort -u | sed 's|^|./|'
