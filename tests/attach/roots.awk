# Dumps of storm.lua: every stack has the root it must have. Prints those that have not, and fails when there are any or no stack was seen.
function judge() {
  if (title ~ /^  main thread/ && count > 0 && (last !~ /\[C\] in/ || before !~ /main chunk/)) wrong[++bad] = title " " last
  # a coroutine begins with its body, or with what that tail-called
  if (title ~ /^  coroutine.*(running|normal|suspended)/ && count > 0 && last !~ /^    (function <storm.lua:(9|16)>|nested|deep|select|built-in function) /)
    wrong[++bad] = title " " last
  if (title != "" && count > 0) total++
  title = before = last = ""
  count = 0
}
/^  [a-z]/ { judge(); title = $0; next }
/^    / { before = last; last = $0; count++; next }
{ judge() }
END {
  judge()
  for (i = 1; i <= bad; i++) print wrong[i]
  exit bad > 0 || total == 0
}
