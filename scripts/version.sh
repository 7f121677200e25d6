#!/bin/sh
# The version lives once, in the public header.
sed -n 's/^#define HEED_VERSION_\(MAJOR\|MINOR\|PATCH\) \([0-9]*\)$/\2/p' "$(dirname "$0")/../include/heed/common.h" | paste -sd.
