# The arguments come as JSON on standard input; what is written is the result.
tr -cd 0-9 | wc -c
