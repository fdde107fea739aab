# Reads code from descriptor 3 and runs it in this shell, so that what it changes stays. A call's number comes behind its code and is not
# read before the code has ended. Code that runs does not have descriptor 3. Groups with 2>/dev/null keep set -x out of the output. The
# three loops are for code that says break outside of any loop. All is joined to one line, so that bash counts the lines of the code.
exec 2>&1;
{ __tranche_status=; } 2>/dev/null;
while { :; } 2>/dev/null; do while { :; } 2>/dev/null; do while { :; } 2>/dev/null; do
  {
    builtin trap : INT;
    if [[ -n $__tranche_status ]]; then
      IFS= builtin read -r -d '' -u 3 __tranche_code || builtin exit 0;
      builtin printf '\n%s ran %d\n' "$__tranche_code" "$__tranche_status" >&3;
    fi;
    IFS= builtin read -r -d '' -u 3 __tranche_code || builtin exit 0;
    __tranche_status=0;
    # An interrupt ends what runs: this function, or else everything up to the top of the loops.
    builtin trap '[[ ${#FUNCNAME[@]} -gt 0 ]] && builtin return 130; __tranche_status=130; builtin continue 99' INT;
  } 2>/dev/null;
  builtin eval "$__tranche_code" 3>&-;
  { __tranche_status=$?; } 2>/dev/null;
done; done; done
