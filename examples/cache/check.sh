#!/bin/sh
# A test: the numbers are in order, and no other file can be seen.
sort -nc data/numbers && ! test -e notes.txt && echo "$(wc -l <data/numbers) numbers in order"
