# shellcheck shell=sh
# Messages, and running gcloud: time limits, output, and the reasons of failures.

# Control characters, which a variable may hold, do not reach the terminal.
say() {
  case $* in
    *[[:cntrl:]]*)
      printf 'run_tpu.sh: %s\n' "$*" | LC_ALL=C sed "s/[$(printf '\001-\010\013-\037\177')]/?/g" >&2
      ;;
    *) printf 'run_tpu.sh: %s\n' "$*" >&2 ;;
  esac
}

# For an error that the user must fix.
fail() {
  say "$@"
  exit 2
}

# Prints a command with quotes, ready to paste.
show() {
  line=
  for word; do
    case $word in
      '' | *[!A-Za-z0-9_./:=@%+,-]*) word="'$(printf '%s' "$word" | sed "s/'/'\\\\''/g")'" ;;
    esac
    line="$line $word"
  done
  printf '%s\n' "${line# }"
}

# Shows a command and runs it; a dry run only shows it. The command runs in the background, so that the shell
# handles signals at once, and in a session of its own: gcloud handles Ctrl-C even if it was started to ignore it.
# While $silent is set, commands are not shown.
step() {
  if [ -z "$silent" ]; then show "$@" >&3; fi
  if [ -n "$dry_run" ]; then return; fi
  running=$* status=0
  (
    trap '' HUP INT QUIT
    launch "$@"
  ) </dev/null 3>&- 4>&- &
  wait "$!" || status=$?
  running=
  return "$status"
}

# Replaces this process by a command; gcloud gets a time limit.
launch() {
  limit=$TIMEOUT_SECONDS
  case $* in
    # The only commands that may take longer.
    *' create '* | *' delete '* | *' rsync '* | *' scp '* | *' start '* | *' stop '*) ;;
    *) if [ "$limit" -gt 120 ]; then limit=120; fi ;;
  esac
  if [ "$1" = gcloud ] && command -v timeout >/dev/null; then set -- timeout -k 10 "$limit" "$@"; fi
  if command -v setsid >/dev/null; then set -- setsid "$@"; fi
  exec "$@"
}

# Prepares the files for gcloud's output, which tells whose a TPU is. Some systems clean /tmp during a long run, and a
# disk may be full: neither may keep the TPU from being deleted.
prepare_files() {
  for place in "$scratch" "${TMPDIR:-/tmp}" "$here" /dev/shm; do
    if [ "$place" != "$scratch" ]; then scratch=$(mktemp -d "$place/.run_tpu.XXXXXX" 2>/dev/null) || continue; fi
    output=$scratch/output errors=$scratch/errors
    if { echo >"$output" && echo >"$errors"; } 2>/dev/null; then return; fi
    if [ -d "$scratch" ]; then rm -rf "$scratch"; fi
  done
  scratch=/dev/null output=/dev/null errors=/dev/null
}

# Runs a gcloud command. Its output is in $output, and its error message in $errors.
quietly() {
  prepare_files
  status=0
  step "$@" >"$output" 2>"$errors" || status=$?
  end_lines
  case $status in
    124 | 137) printf 'gcloud was stopped: timed out\n' >>"$errors" ;;
    126 | 127) printf 'gcloud does not start\n' >>"$errors" ;;
  esac
  return "$status"
}

# Removes the carriage returns with which a gcloud of Windows ends its lines. On a full disk they stay.
end_lines() {
  for answer in "$output" "$errors"; do
    if grep -q "$cr\$" "$answer" && sed "s/$cr\$//" "$answer" >"$answer.lines"; then
      cat "$answer.lines" >"$answer"
    fi
  done 2>/dev/null
}

# Prints the value of a gcloud setting; nothing if it is not set.
setting() {
  value=$( (launch gcloud config get-value "$1") 2>/dev/null) || value=
  value=${value%"$cr"}
  case $value in *[!a-z0-9.:-]*) value= ;; esac
  printf '%s' "$value"
}

# Whether the error message of the last failed gcloud command matches. Names of projects in it, such as "billing", are
# ignored.
said() { sed "s|projects/[^[:space:]]*||g" "$errors" | grep -qiE "$1"; }

# Explains the last failed gcloud command, and returns whether it was denied for good. A resource that is "not found",
# but was found before, may be found again later.
is_lasting() {
  explain
  [ "$kind" = lasting ] && ! said 'not[ _]found|404|gcloud does not start'
}

# Sets $cause to an explanation of the last failed gcloud command, or to an empty string. Sets $kind to "lasting" if
# retrying cannot help, to "refused" if it can, and the request certainly had no effect, and to "passing" otherwise.
explain() {
  kind=lasting try_later='try later, or another ZONE'
  if [ "$resource" = vm ]; then try_later="$try_later; or use --queued, which waits until there is one"; fi
  if said 'migrate to TPU VM|TPU node.* denied'; then
    cause="Google Cloud ended TPU nodes in April 2025, and no longer creates them. Remove --architecture=node: the \
default, --architecture=vm, makes a TPU VM with TensorFlow 2.15"
  elif said 'gcloud does not start'; then
    cause='gcloud does not start; install it again as in https://cloud.google.com/sdk/docs/install'
  elif said 'has not been used|SERVICE_DISABLED|accessNotConfigured|API.*(disabled|not enabled)'; then
    cause="an API is not enabled; use: gcloud services enable tpu.googleapis.com compute.googleapis.com \
storage.googleapis.com --project=$PROJECT"
  elif said billing; then
    cause="the project $PROJECT has no billing account; use: gcloud billing projects link $PROJECT \
--billing-account=ACCOUNT"
  elif said 'authentication scopes'; then
    cause='this machine was made without the access scope cloud-platform; make it again with --scopes=cloud-platform'
  elif said 'active account|auth(enticat|.login)|invalid_grant|credential|code.401|http.?error 401'; then
    cause='gcloud is not logged in; use: gcloud auth login'
  elif said 'per (minute|[0-9]+ ?seconds)|rate.?limit|too many requests|code.429'; then
    kind=refused cause='too many requests at the moment'
  elif said 'capacity|stock.?out|resources? .*(unavailable|not available)|not enough resources'; then
    kind=refused cause="$ZONE has no free $TPU_TYPE at the moment; $try_later"
  elif said 'quota|limit exceeded|exceeded .*limit'; then
    cause="the quota of the project $PROJECT does not suffice; delete what is not needed, or ask for more at \
https://console.cloud.google.com/iam-admin/quotas?project=$PROJECT"
  elif said 'RESOURCE_EXHAUSTED'; then
    kind=refused cause="$ZONE has no free $TPU_TYPE at the moment; $try_later"
  elif said 'already[ _]?exists'; then
    cause="$TPU_NAME exists already, or another start has just made it; choose another TPU_NAME"
  elif said 'publickey|port 22|return code \[255\]|host key verification'; then
    kind=passing cause="$TPU_NAME does not accept SSH connections (yet); the network $NETWORK needs a firewall rule that \
allows TCP port 22, such as default-allow-ssh"
  elif said 'permission|forbidden|not authorized|denied|code.403|http.?error 403'; then
    cause="the account that gcloud uses (gcloud auth list) has no permission for this in the project $PROJECT; TPUs \
need the role roles/tpu.admin, buckets roles/storage.objectAdmin: gcloud projects add-iam-policy-binding"
  elif said 'could ?n.t resolve|unable to (find the server|connect)|unreachable|connection|timed? ?out|deadline'; then
    kind=passing cause='gcloud cannot reach Google Cloud, or gets no answer in time; check the network, and retry'
  elif said 'unavailable|try again|internal|backend|aborted|cancel+ed|code.5[0-9][0-9]|http.?error 5[0-9][0-9]'; then
    kind=passing cause='Google Cloud has an error that may pass; retry'
  elif said 'invalid|unrecognized|must (be|match)|malformed|unsupported|not supported|bad request|code.400'; then
    cause='gcloud refuses the request; check PROJECT, ZONE, NETWORK, TPU_NAME, TPU_TYPE, TPU_VERSION and TPU_RANGE'
  elif said 'not[ _]found|does not exist|unknown (project|zone|location)'; then
    cause='this does not exist; check PROJECT, ZONE, NETWORK, TPU_TYPE and TPU_VERSION'
  else
    kind=passing cause=
  fi
}

# Ends the script after a failed gcloud command with the given message and its explanation.
fail_because() {
  explain
  if [ -n "$cause" ]; then say "$1: $cause"; else say "$1"; fi
  if [ "$kind" = lasting ]; then exit 2; fi
  exit 1
}
