#!/bin/sh
# ./run_tpu.sh [--create] [--dry_run] [--FLAG=VALUE …]   trains Inception v3 on a Cloud TPU node.
#
#   --create    create the node, and delete it at the end: after success, an error, any signal but SIGKILL, or a
#               lost connection
#   --dry_run   print every command, in order, and run none of them; needs no gcloud
#   --help      print this text
#
# All other flags are flags of the program; ./run python -m inception_v3.main --help lists them. The script
# first checks the node's name, the buckets, the flags and the graphs of the run, before anything costs money.
# If the program fails, the script restarts it, and it resumes from its last checkpoint. If a node made by
# --create was lost, the script creates a new one first. An error that you must fix (exit code 2 of the
# program) ends the run at once. If the program was ended by SIGTERM (exit code 75), it is restarted, too.
# A SIGTERM to this script lets the program save its last step, and ends both; so does Ctrl-C, and a second Ctrl-C
# does not wait for the program. Ctrl-Z is ignored.
#
# The script deletes only the node that it made: the one with its description and creation time. It uses no node of
# another type or TensorFlow version than TPU_TYPE and TPU_VERSION.
#
# The node's service account needs access to the buckets. The program connects to the node's internal
# address, so run the script in the node's network, with nohup if the terminal may close.
#
# Cloud Shell is not in that network, and ends before a long run does. There, --create makes a virtual machine
# that creates the node, does the run and deletes both, even if Cloud Shell ends. The default service account
# of Compute Engine needs permission for that (role Editor).
#
# Exit codes: 0 done; 1 failed, retrying may succeed; 2 fix something first, the message says what;
# 75 ended by SIGTERM, 129 by a lost terminal, 130 by Ctrl-C, 131 by Ctrl-\: the same command resumes.
#
# Environment variables and their defaults:
#
# The Google Cloud project; default: the one set by gcloud config set project PROJECT.
PROJECT=${PROJECT:-}
# The zone of the node; default: the one set by gcloud config set compute/zone ZONE.
ZONE=${ZONE:-}
# The bucket for data and results, in the region of the zone.
BUCKET=${BUCKET:-}
BUCKET=${BUCKET#gs://}
# The folders of the records, of checkpoints and results, and of the SavedModel (EXPORT_DIR= for no export).
DATA_DIR=${DATA_DIR:-gs://$BUCKET/imagenet}
MODEL_DIR=${MODEL_DIR:-gs://$BUCKET/inception_v3}
EXPORT_DIR=${EXPORT_DIR-$MODEL_DIR/export}
# The name of the node, its type (v2-8, or a slice such as v2-32), and its TensorFlow version.
TPU_NAME=${TPU_NAME:-inception-v3}
TPU_TYPE=${TPU_TYPE:-v2-8}
TPU_VERSION=${TPU_VERSION:-1.15}
# For --create: preemptible (true or false), the network, and a free /29 range in it; default: Google chooses.
PREEMPTIBLE=${PREEMPTIBLE:-false}
NETWORK=${NETWORK:-default}
TPU_RANGE=${TPU_RANGE:-}
# The maximum number of restarts without a new checkpoint in between, the maximum number of attempts to
# create a new node for a lost one, and the seconds to wait before each.
MAX_RESTARTS=${MAX_RESTARTS:-5}
MAX_RENEWALS=${MAX_RENEWALS:-60}
RESTART_SECONDS=${RESTART_SECONDS:-60}
# The seconds after which a gcloud command, or the program after SIGTERM, is killed (queries: at most 120 seconds).
TIMEOUT_SECONDS=${TIMEOUT_SECONDS:-1200}

set -eu

types='v2-8 v2-32 v2-128 v2-256 v2-512 v3-8 v3-32 v3-64 v3-128 v3-256 v3-512 v3-1024 v3-2048'

say() { printf 'run_tpu.sh: %s\n' "$*" >&2; }

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
step() {
  show "$@" >&3
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
    *' create '* | *' delete '* | *' rsync '*) ;;
    *) if [ "$limit" -gt 120 ]; then limit=120; fi ;;
  esac
  if [ "$1" = gcloud ] && command -v timeout >/dev/null; then set -- timeout -k 10 "$limit" "$@"; fi
  if command -v setsid >/dev/null; then set -- setsid "$@"; fi
  exec "$@"
}

# Prepares the files of what gcloud prints. Some systems clean /tmp during a long run, and a disk may be full: neither
# may keep a node from being deleted.
prepare_files() {
  if [ ! -d "$scratch" ]; then scratch=$(mktemp -d 2>/dev/null) || scratch=/dev/null; fi
  output=$scratch/output errors=$scratch/errors
  if ! { true >"$output" && true >"$errors"; } 2>/dev/null; then output=/dev/null errors=/dev/null; fi
}

# Runs a gcloud command. Its output is in $output, and its error message in $errors.
quietly() {
  prepare_files
  status=0
  step "$@" >"$output" 2>"$errors" || status=$?
  case $status in
    124 | 137) printf 'gcloud was stopped: timed out\n' >>"$errors" ;;
    126 | 127) printf 'gcloud does not start\n' >>"$errors" ;;
  esac
  return "$status"
}

# Prints the value of a gcloud setting; nothing if it is not set.
setting() {
  value=$( (launch gcloud config get-value "$1") 2>/dev/null) || value=
  case $value in *[!a-z0-9.:-]*) value= ;; esac
  printf '%s' "$value"
}

# Whether the error message of the last failed gcloud command matches.
said() { grep -qiE "$1" "$errors"; }

# Sets $cause to an explanation of the last failed gcloud command, or to an empty string. Sets $kind to "lasting" if
# retrying cannot help, to "refused" if it can, and the request certainly had no effect, and to "passing" otherwise.
explain() {
  kind=lasting
  if said 'migrate to TPU VM|TPU node.* denied'; then
    cause="Google Cloud ended TPU nodes in April 2025, and no longer creates them. Use a node that you still have \
without --create, or train without a TPU (README.md)"
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
    kind=refused cause="$ZONE has no free $TPU_TYPE at the moment; try later, or another ZONE"
  elif said 'quota|limit exceeded|exceeded .*limit'; then
    cause="the quota of the project $PROJECT does not suffice; delete what is not needed, or ask for more at \
https://console.cloud.google.com/iam-admin/quotas?project=$PROJECT"
  elif said 'RESOURCE_EXHAUSTED'; then
    kind=refused cause="$ZONE has no free $TPU_TYPE at the moment; try later, or another ZONE"
  elif said 'already[ _]?exists'; then
    cause="another start has just made $TPU_NAME; choose another TPU_NAME"
  elif said 'permission|forbidden|not authorized|denied|code.403|http.?error 403'; then
    cause="the account that gcloud uses (gcloud auth list) has no permission for this in the project $PROJECT; nodes \
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

# Asks for a resource (tpus or instances) with the name of the node. Sets $state to its state (READY, PREEMPTED …), to
# NOT_FOUND, to UNKNOWN if gcloud fails, or to an empty string if gcloud prints no state; and sets $type, $version,
# $created and $description.
ask_for() {
  fields=state,acceleratorType,tensorflowVersion,createTime,description
  if [ "$1" = instances ]; then fields=status,description; fi
  state='' type='' version='' created='' description=''
  set -- gcloud compute "$1" describe "$TPU_NAME" --project="$PROJECT" --zone="$ZONE" "--format=value($fields)"
  if quietly "$@"; then
    if [ -n "$dry_run" ]; then return; fi
    line=
    IFS= read -r line <"$output" || true
    next_field && state=$field
    if [ "$3" = tpus ]; then
      next_field && type=${field##*/}
      next_field && version=$field
      next_field && created=$field
    fi
    description=$line
    case $state in *[!A-Z_]*) state='' type='' version='' created='' description='' ;; esac
  elif said 'not[ _]found' && ! said '(command|project|location|zone|file) ([^ ]+ )?(was |is )?not found'; then
    state=NOT_FOUND
  else
    state=UNKNOWN
  fi
}

# Moves the first of the fields in $line, which are separated by tabs, to $field.
next_field() {
  field=${line%%"$tab"*}
  line=${line#"$field"}
  line=${line#"$tab"}
}

cannot_say() {
  cat "$errors" >&2
  fail_because "gcloud cannot tell whether the node $TPU_NAME exists in $ZONE"
}

# Ends the script if a node has another type or version than the run needs.
check_type_and_version() {
  if [ -n "$dry_run" ]; then return; fi
  if [ -z "$type" ] || [ -z "$version" ]; then
    say "gcloud does not say whether $TPU_NAME is a $TPU_TYPE with TensorFlow $TPU_VERSION"
  fi
  mismatch=
  case $type in '' | "$TPU_TYPE") ;; *) mismatch="is a $type, not a $TPU_TYPE (variable TPU_TYPE)" ;; esac
  case $version in
    '' | "$TPU_VERSION" | "$TPU_VERSION".*) ;;
    *) mismatch="${mismatch:+$mismatch, and }has TensorFlow $version, not $TPU_VERSION (variable TPU_VERSION)" ;;
  esac
  if [ -z "$mismatch" ]; then return; fi
  fail "$TPU_NAME: this node $mismatch. Correct the variable, or choose another TPU_NAME"
}

# Creates a resource (tpus or instances) with the name of the node and the given flags.
create_it() {
  # From here on the resource may exist, even if gcloud fails. The time decides whether a resource without a
  # description was made since.
  made=$1 sure='' existed='' kind='' born='' began=$(date -u +%Y%m%d%H%M%S 2>/dev/null) || began=
  shift
  set -- gcloud compute "$made" create "$TPU_NAME" --project="$PROJECT" --zone="$ZONE" --network="$NETWORK" \
    --description="$mark" "$@"
  if quietly "$@"; then
    sure=1
    return
  fi
  creation_failed
  return 1
}

creation_failed() {
  cat "$errors" >&2
  explain
  if said 'already[ _]?exists'; then existed=1; fi
}

# Creates the node and waits until it is ready.
create_node() {
  set -- --accelerator-type="$TPU_TYPE" --version="$TPU_VERSION"
  if [ -n "$TPU_RANGE" ]; then set -- "$@" --range="$TPU_RANGE"; fi
  if [ "$PREEMPTIBLE" = true ]; then set -- "$@" --preemptible; fi
  create_it tpus "$@" || return 1
  asked=0
  while :; do
    ask_for tpus
    case $state in
      CREATING | STARTING | RESTARTING | REIMAGING | REPAIRING) ;;
      UNKNOWN)
        if [ ! -s "$errors" ]; then break; fi
        cat "$errors" >&2
        explain
        if [ "$kind" = lasting ]; then return 1; fi
        ;;
      *) break ;;
    esac
    asked=$((asked + 1))
    if [ "$asked" -ge 20 ]; then
      say "$TPU_NAME is $state after its creation"
      cause='' kind=passing
      return 1
    fi
    step sleep "$RESTART_SECONDS"
  done
  # Only now is it known when the node was made.
  born=$created
  case $state in
    '' | READY | UNKNOWN) ;;
    *)
      say "$TPU_NAME is $state after its creation"
      cause='' kind=passing
      return 1
      ;;
  esac
  check_type_and_version
}

# Whether the resource that ask_for found was made by this start.
is_ours() {
  if [ -n "$born" ] && [ -n "$created" ] && [ "$created" != "$born" ]; then return 1; fi
  case $description in
    "$mark") return 0 ;;
    ?*) return 1 ;;
  esac
  if [ -n "$sure" ]; then return 0; fi
  # The creation failed, and gcloud does not say who made the resource.
  if [ -n "$existed" ]; then return 1; fi
  digits=$(printf '%.19s' "$created" | sed 's/[^0-9]//g')
  if [ -z "$digits" ] || [ -z "$began" ]; then [ -z "$unsure" ]; else [ "$digits" -ge "$began" ]; fi
}

# Deletes the resource that was created, and asks whether it is gone.
delete_it() {
  set -- gcloud compute "$made" delete "$TPU_NAME" --project="$PROJECT" --zone="$ZONE" --quiet
  attempt=0
  while [ "$attempt" -lt 10 ]; do
    if [ "$attempt" -gt 0 ]; then step sleep "$RESTART_SECONDS"; fi
    attempt=$((attempt + 1))
    ask_for "$made"
    case $state in
      NOT_FOUND)
        # A creation that got no answer may still make the node.
        if [ -z "$sure" ] && [ "$kind" = passing ] && [ "$attempt" -lt 3 ]; then continue; fi
        made=
        return
        ;;
      UNKNOWN)
        cat "$errors" >&2
        if [ "$attempt" -lt 3 ]; then continue; fi
        if [ -z "$sure" ]; then break; fi
        ;;
      *)
        if [ -z "$dry_run" ] && ! is_ours; then
          say "$TPU_NAME: this start did not make it (created ${created:-at an unknown time}), and does not delete it"
          made=
          return
        fi
        ;;
    esac
    if quietly "$@" || said 'not[ _]found'; then
      ask_for "$made"
      case $state in
        '' | NOT_FOUND | UNKNOWN | DELETING) made= ;;
        *) if ! is_ours; then made=; fi ;;
      esac
      if [ -z "$made" ]; then return; fi
    else
      cat "$errors" >&2
    fi
  done
  explain
  say "$TPU_NAME COULD NOT BE DELETED${cause:+ ($cause)}. IF IT EXISTS, IT COSTS MONEY UNTIL YOU DELETE IT." \
    'The command is:'
  show "$@" >&2
  return 1
}

# Sends a signal to the running command and to what it started.
signal_command() { kill -s "$1" -- "-$!" 2>/dev/null || kill -s "$1" "$!" 2>/dev/null; }

# shellcheck disable=SC2317  # clean_up calls it.
# Waits until the running command has ended. Ctrl-C, Ctrl-\ or the time limit kills it.
wait_for_command() {
  command=$!
  trap 'kill -s KILL -- "-$command" 2>/dev/null || kill -s KILL "$command"' INT QUIT
  # Ends soon after the command; 124 is the exit code of the time limit.
  (
    timeout "$TIMEOUT_SECONDS" tail --pid="$command" -f /dev/null
    if [ $? -eq 124 ]; then kill -s KILL -- "-$command" || kill -s KILL "$command"; fi
  ) </dev/null >/dev/null 2>&1 3>&- 4>&- &
  while :; do
    wait "$command"
    status=$?
    if ! kill -s 0 "$command" 2>/dev/null; then break; fi
  done
  trap '' INT QUIT
  return "$status"
}

# shellcheck disable=SC2317  # The trap calls it.
clean_up() {
  code=$?
  # No signal and no closed terminal may interrupt the cleanup.
  trap '' HUP INT QUIT ABRT PIPE ALRM TERM USR1 USR2 XCPU XFSZ VTALRM
  set +e
  # In some shells, output is still redirected as for the interrupted command.
  exec 2>&4
  case $running in
    '') ;;
    # A resource cannot be deleted before its creation has finished.
    'gcloud compute '*' create '*)
      say 'waiting for gcloud to finish; Ctrl-C stops it, and then deletes what it made'
      if wait_for_command; then sure=1; else creation_failed; fi
      ;;
    *inception_v3.main*)
      say 'waiting for the program to save its last step; Ctrl-C ends it at once'
      kill -s TERM "$!"
      wait_for_command
      ;;
    *)
      signal_command TERM
      wait_for_command
      ;;
  esac
  running=
  if [ -n "$made" ] && ! delete_it && [ "$code" -eq 0 ]; then code=2; fi
  case $scratch in /dev/null) ;; *) rm -rf "$scratch" ;; esac
  exit "$code"
}

# Sets $checkpoint, unless gcloud fails, and returns whether it has changed.
there_is_a_new_checkpoint() {
  before=$checkpoint
  # The other lines of the file change at every start of the program.
  if quietly gcloud storage cat "$MODEL_DIR/checkpoint"; then
    checkpoint=$(sed -n 's/^model_checkpoint_path: //p' "$output")
  fi
  [ "$checkpoint" != "$before" ]
}

# Waits, and creates a new node if the node was created here and is lost.
get_node_back() {
  lost='' renewals=0
  while :; do
    step sleep "$RESTART_SECONDS"
    ask_for tpus
    case $state in PREEMPTED | TERMINATED | STOPPED | DELETING | NOT_FOUND) lost=1 ;; esac
    say "$TPU_NAME is ${state:-in an unknown state}"
    case $state in
      UNKNOWN)
        cat "$errors" >&2
        explain
        if [ "$kind" = lasting ]; then fail "$TPU_NAME: $cause"; fi
        ;;
      '' | NOT_FOUND) ;;
      *)
        if [ -n "$made" ] && ! is_ours; then
          made=
          fail "$TPU_NAME: this node was made by another start, and was not changed; choose another TPU_NAME"
        fi
        check_type_and_version
        ;;
    esac
    if [ -z "$made" ] || [ -z "$lost" ]; then return; fi
    if delete_it; then
      if create_node; then return; fi
      # The quota sufficed before.
      if [ "$kind" = lasting ] && ! said quota; then fail "$TPU_NAME could not be created: $cause"; fi
    fi
    renewals=$((renewals + 1))
    if [ "$renewals" -ge "$MAX_RENEWALS" ]; then
      say "stopped: no new node in $renewals attempts; the same command resumes from the last checkpoint"
      return 1
    fi
  done
}

# Creates a virtual machine that runs this script with the same arguments, and then deletes itself.
hand_over() {
  set -- env
  for name in PROJECT ZONE BUCKET DATA_DIR MODEL_DIR EXPORT_DIR TPU_NAME TPU_TYPE TPU_VERSION PREEMPTIBLE NETWORK \
    TPU_RANGE MAX_RESTARTS MAX_RENEWALS RESTART_SECONDS TIMEOUT_SECONDS; do
    eval "set -- \"\$@\" \"$name=\$$name\""
  done
  # With the same mark, a machine that crashed and started again recognizes the node that it made before.
  set -- "$@" "RUN_TPU_MARK=$mark"
  program=$MODEL_DIR/program at="--project=$PROJECT --zone=$ZONE"
  # Names that begin with a dot are local: environments, caches, git.
  local='--exclude=(.*/)?(\.|__pycache__/)|(build|runs|site)/'
  if ! quietly gcloud storage rsync --recursive "$local" "$here" "$program"; then
    cat "$errors" >&2
    fail_because "$program: the program could not be copied there"
  fi
  # If the machine has no permission to delete itself, it shuts down, and costs little.
  startup="#!/bin/sh
export HOME=/root
cd \"\$(mktemp -d)\"
{
  apt-get -qq update && apt-get -qq install python3-venv &&
    gcloud storage rsync --recursive $(show "$program") . && chmod +x run run_tpu.sh &&
    $(show "$@") $call
} 2>&1 | tee run_tpu.log
gcloud storage cp run_tpu.log $(show "$MODEL_DIR/run_tpu.log")
gcloud compute instances delete $TPU_NAME $at --quiet || shutdown -h now"
  say "creating the machine $TPU_NAME, which creates the node $TPU_NAME, does the run and deletes both at the end"
  create_it instances --machine-type=n1-standard-8 --boot-disk-size=50GB --scopes=cloud-platform \
    --image-family=debian-12 --image-project=debian-cloud --metadata="^@@@^startup-script=$startup" ||
    fail_because "the machine $TPU_NAME could not be created"
  # From here on the machine deletes itself.
  made=
  say "the machine does not need this terminal, and writes its log to $MODEL_DIR/run_tpu.log.
To watch it, and to end it early:
  gcloud compute instances tail-serial-port-output $TPU_NAME $at
  gcloud compute instances delete $TPU_NAME $at && gcloud compute tpus delete $TPU_NAME $at"
}

train() {
  step "$here/run" python -m inception_v3.main --tpu="$TPU_NAME" --tpu_zone="$ZONE" --gcp_project="$PROJECT" "$@"
}

case $0 in */*) here=${0%/*} ;; *) here=. ;; esac
create='' dry_run=''
for flag; do
  shift
  # The program accepts -FLAG for --FLAG.
  case $flag in --*) name=$flag ;; -*) name=-$flag ;; *) name= ;; esac
  case ${name%%=*} in
    --help | --h)
      sed -n -e '/^set/q' -e '2,$s/^# \{0,1\}//p' -e 's/^\([A-Z_]*\)=\${[A-Z_]*:\{0,1\}-\(.*\)}$/    \1=\2/p' "$0"
      exit
      ;;
    --create) create=1 ;;
    --dry_run) dry_run=1 ;;
    --tpu) fail "$flag: set the variable TPU_NAME" ;;
    --tpu_zone) fail "$flag: set the variable ZONE" ;;
    --gcp_project) fail "$flag: set the variable PROJECT" ;;
    --num_shards) fail "$flag: set the variable TPU_TYPE" ;;
    --data_dir) fail "$flag: set the variable DATA_DIR" ;;
    --model_dir) fail "$flag: set the variable MODEL_DIR" ;;
    --export_dir) fail "$flag: set the variable EXPORT_DIR" ;;
    --master) fail "$flag: remove it; the variable TPU_NAME names the node" ;;
    --topology) fail "$flag: remove it; the preflight uses the variable TPU_TYPE" ;;
    --use_tpu | --nouse_tpu) fail "$flag: remove it; the run always uses the node" ;;
    --xla | --noxla | --json | --nojson)
      fail "$flag: only the preflight has this flag; use it with ./run python -m inception_v3.preflight"
      ;;
    *) set -- "$@" "$flag" ;;
  esac
done

case " $types " in *" $TPU_TYPE "*) ;; *) fail "TPU_TYPE=$TPU_TYPE: must be one of $types" ;; esac
case $PREEMPTIBLE in true | false) ;; *) fail "PREEMPTIBLE=$PREEMPTIBLE: must be true or false" ;; esac
case $MAX_RESTARTS in '' | *[!0-9]*) fail "MAX_RESTARTS=$MAX_RESTARTS: must be a whole number" ;; esac
case $MAX_RENEWALS in '' | *[!0-9]*) fail "MAX_RENEWALS=$MAX_RENEWALS: must be a whole number" ;; esac
case $RESTART_SECONDS in '' | *[!0-9]*) fail "RESTART_SECONDS=$RESTART_SECONDS: must be a whole number" ;; esac
case $TIMEOUT_SECONDS in
  '' | 0 | *[!0-9]*) fail "TIMEOUT_SECONDS=$TIMEOUT_SECONDS: must be a whole number above 0" ;;
esac
case $TPU_VERSION in
  1.15 | 1.15.[0-9]) ;;
  *) fail "TPU_VERSION=$TPU_VERSION: must be 1.15, or 1.15.N: the program uses TensorFlow 1.15" ;;
esac
case $TPU_NAME in
  *[!a-z0-9-]* | [!a-z]* | *-)
    fail "TPU_NAME=$TPU_NAME: must have only a-z, 0-9 and -, begin with a letter and not end with -"
    ;;
esac
case $TPU_RANGE in
  '' | [0-9]*.[0-9]*.[0-9]*.[0-9]*/29) ;;
  *) fail "TPU_RANGE=$TPU_RANGE: must be a range such as 10.1.0.0/29" ;;
esac
if ! command -v gcloud >/dev/null && [ -z "$dry_run" ]; then
  fail 'gcloud: not found; install it as in https://cloud.google.com/sdk/docs/install'
fi
# gcloud must never wait for input.
export CLOUDSDK_CORE_DISABLE_PROMPTS=1
PROJECT=${PROJECT:-$(setting project)}
if [ -z "$PROJECT" ]; then
  fail 'PROJECT: not set; use PROJECT=my-project ./run_tpu.sh, or gcloud config set project my-project'
fi
ZONE=${ZONE:-$(setting compute/zone)}
if [ -z "$ZONE" ]; then
  fail "ZONE: not set; use ZONE=us-central1-b ./run_tpu.sh; gcloud compute tpus locations list shows zones with TPUs"
fi
case $ZONE in
  [a-z]*-[a-z]*[0-9]-[a-z]) ;;
  *) fail "ZONE=$ZONE: must be a zone, such as us-central1-b; gcloud compute tpus locations list shows them" ;;
esac
case $PROJECT in
  *[!a-z0-9.:-]* | -*) fail "PROJECT=$PROJECT: must be the ID of a project; gcloud projects list shows them" ;;
esac
for folder in "$DATA_DIR" "$MODEL_DIR"; do
  case $folder in
    gs:///*) fail 'BUCKET: not set; use BUCKET=my-bucket ./run_tpu.sh, or set DATA_DIR and MODEL_DIR' ;;
    gs://?*) ;;
    *) fail "$folder: must be in Cloud Storage, gs://BUCKET/FOLDER: the node cannot read this machine's files" ;;
  esac
done

if [ "${CLOUD_SHELL:-}" = true ] && [ -z "$create" ]; then
  fail 'Cloud Shell cannot reach a node. Use --create to create the node and a machine that can reach it. For an' \
    "existing node, run this script on a machine in the node's network"
fi
# The command for the virtual machine; then the arguments of both the program and its preflight.
call=$(show ./run_tpu.sh --create "$@")
cores=${TPU_TYPE#*-}
if [ -n "$EXPORT_DIR" ]; then set -- --export_dir="$EXPORT_DIR" "$@"; fi
set -- --num_shards="$cores" --data_dir="$DATA_DIR" --model_dir="$MODEL_DIR" "$@"

made='' sure='' unsure='' existed='' born='' began='' kind='' cause='' running='' tab=$(printf '\t')
scratch=$(mktemp -d) || fail "a temporary folder cannot be made in ${TMPDIR:-/tmp}: free some space, or set TMPDIR"
prepare_files
# The description of the node: no other start has the same.
mark=${RUN_TPU_MARK:-run_tpu.sh-${scratch##*[./]}-$$}
if [ -n "$dry_run" ]; then exec 3>&1; else exec 3>&2; fi
exec 4>&2
trap clean_up EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 131' QUIT
trap 'exit 134' ABRT
trap 'exit 138' USR1
trap 'exit 140' USR2
trap 'exit 141' PIPE
trap 'exit 142' ALRM
trap 'exit 75' TERM
trap 'exit 152' XCPU
trap 'exit 153' XFSZ
trap 'exit 154' VTALRM
# A stopped script could not delete the node.
trap '' TSTP TTIN TTOU

ask_for tpus
if [ -n "$create" ] && [ "$description" = "$mark" ]; then
  say "$TPU_NAME: this node is left over from a crash of this run, and is deleted first"
  made=tpus sure=1
  delete_it || exit 2
  state=NOT_FOUND
fi
case $create$state in
  1 | 1UNKNOWN)
    # The state is unknown. Creation fails if the node exists.
    if [ -z "$dry_run" ]; then
      if [ "${CLOUD_SHELL:-}" = true ] || { [ -n "$state" ] && [ -s "$errors" ]; }; then cannot_say; fi
      unsure=1
    fi
    ;;
  UNKNOWN) cannot_say ;;
  1NOT_FOUND) ;;
  READY)
    check_type_and_version
    ;;
  '') if [ -z "$dry_run" ]; then cannot_say; fi ;;
  1*)
    fail "$TPU_NAME: this node already exists and is $state; it was not changed. Use it without --create, choose" \
      "another TPU_NAME, or delete it with: gcloud compute tpus delete $TPU_NAME --project=$PROJECT --zone=$ZONE"
    ;;
  NOT_FOUND) fail "$TPU_NAME: does not exist in $ZONE; --create creates it, and deletes it at the end" ;;
  *) fail "$TPU_NAME: this node is $state, and must be READY" ;;
esac
checked=
for folder in "$DATA_DIR" "$MODEL_DIR"; do
  folder=${folder#gs://}
  bucket=gs://${folder%%/*}
  if [ "$bucket" = "$checked" ]; then continue; fi
  checked=$bucket
  if ! quietly gcloud storage ls "$bucket"; then
    cat "$errors" >&2
    explain
    if [ -n "$cause" ] && ! said 'not[ _]found|404'; then fail_because "$bucket: cannot be listed"; fi
    fail "$bucket: cannot be listed; gcloud storage buckets create $bucket --location=${ZONE%-*} creates it"
  fi
done
code=0
step "$here/run" python -m inception_v3.preflight --topology="$TPU_TYPE" --tpu="$TPU_NAME" --tpu_zone="$ZONE" \
  --gcp_project="$PROJECT" "$@" || code=$?
if [ "$code" -ne 0 ]; then
  say 'the preflight failed, so nothing was started'
  exit "$code"
fi

if [ "${CLOUD_SHELL:-}" = true ]; then
  hand_over
  exit
fi
if [ -n "$create" ]; then
  say "creating $TPU_NAME, and deleting it at the end; only kill -9 or a crash of this machine could leave it there"
  if ! create_node; then
    say "$TPU_NAME could not be created${cause:+: $cause}"
    if [ "$kind" = lasting ]; then exit 2; fi
    exit 1
  fi
fi
say "TensorBoard: ./run tensorboard --logdir=$MODEL_DIR"

code=0 restarts=0 checkpoint=''
train "$@" || code=$?
while [ "$code" -ne 0 ]; do
  case $code in
    2)
      say 'fix this error first; the same command then resumes from the last checkpoint'
      exit "$code"
      ;;
    75) say 'the program was ended by SIGTERM, and has saved its last step' ;;
    129 | 130)
      say 'the program was interrupted; the same command resumes from the last checkpoint'
      exit "$code"
      ;;
  esac
  if there_is_a_new_checkpoint; then restarts=0; fi
  if [ "$restarts" -ge "$MAX_RESTARTS" ]; then
    say "stopped after $restarts restarts without a new checkpoint; the same command resumes from the last one"
    exit "$code"
  fi
  restarts=$((restarts + 1))
  get_node_back || exit "$code"
  say "restart $restarts of at most $MAX_RESTARTS without a new checkpoint"
  code=0
  train "$@" || code=$?
done
if [ -z "$dry_run" ]; then say "done: $MODEL_DIR"; fi
