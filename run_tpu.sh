#!/bin/sh
# ./run_tpu.sh [--create] [--dry_run] [--FLAG=VALUE …]   trains Inception v3 on a Cloud TPU.
#
#   --create    create the TPU, and delete it at the end: after success, an error, any signal but SIGKILL, or a
#               lost connection
#   --spot      with --create: a spot TPU VM, which is cheaper, and is replaced if Google Cloud takes it back
#   --queued    with --create: a queued resource: wait until there is a free TPU
#   --architecture=vm|node
#               vm (default): a TPU VM with TensorFlow 2.15, on which the program runs
#               node: a TPU node with TensorFlow 1.15, for which the program runs on this machine; Google Cloud ended
#               TPU nodes in April 2025, and refuses to create them
#   --dry_run   print every command, in order, and run none of them; needs no gcloud
#   --help      print this text
#
# All other flags are flags of the program; ./run --tf=2.15 python -m inception_v3.main --help lists them. The script
# first checks the TPU's name, the buckets, the flags and the graphs of the run, before anything costs money.
# If the program fails, the script restarts it, and it resumes from its last checkpoint. If a TPU made by
# --create was lost, the script creates a new one first. An error that you must fix (exit code 2 of the
# program) ends the run at once. If the program was ended by SIGTERM (exit code 75), it is restarted, too.
# A SIGTERM to this script lets the program save its last step, and ends both; so does Ctrl-C, and a second Ctrl-C
# does not wait for the program. Ctrl-Z is ignored.
#
# The script deletes only the TPU that it made: the one with its description. If that was edited, or the TPU is not found
# after its creation, the script prints a command and ends with exit code 2. It uses no TPU of another type or version than
# TPU_TYPE and TPU_VERSION.
#
# On a TPU VM, the program, its environment and its log are in ~/.run_tpu. The program continues while the connection
# is broken; the script reconnects. For a slice, the program runs on the first host. Nothing is copied back: the results
# are in MODEL_DIR.
#
# The TPU's service account needs access to the buckets. The script needs SSH access to a TPU VM. The program of a TPU
# node connects to the node's internal address, so it must run in the node's network. Use nohup if the terminal may
# close.
#
# Cloud Shell ends before a long run does. There, --create makes a virtual machine that creates the TPU, does the run
# and deletes both, even if Cloud Shell ends. The default service account of Compute Engine needs permission for that
# (role Editor).
#
# Exit codes: 0 done; 1 failed, retrying may succeed; 2 fix something first, the message says what;
# 75 ended by SIGTERM, 129 by a lost terminal, 130 by Ctrl-C, 131 by Ctrl-\: the same command resumes.
#
# Environment variables and their defaults:
#
# The Google Cloud project; default: the one set by gcloud config set project PROJECT.
PROJECT=${PROJECT:-}
# The zone of the TPU; default: the one set by gcloud config set compute/zone ZONE.
ZONE=${ZONE:-}
# The bucket for data and results, in the region of the zone.
BUCKET=${BUCKET:-}
BUCKET=${BUCKET#gs://}
BUCKET=${BUCKET%"${BUCKET##*[!/]}"}
# The folders of the records, of checkpoints and results, and of the SavedModel (EXPORT_DIR= for no export).
DATA_DIR=${DATA_DIR:-gs://$BUCKET/imagenet}
MODEL_DIR=${MODEL_DIR:-gs://$BUCKET/inception_v3}
MODEL_DIR=${MODEL_DIR%"${MODEL_DIR##*[!/]}"} # Its files are requested by name.
EXPORT_DIR=${EXPORT_DIR-$MODEL_DIR/export}
# The name of the TPU, its type (v2-8, or a slice such as v2-32), and its version. Default: tpu-vm-tf-2.15.1-se,
# tpu-vm-tf-2.15.1-pod-se for a slice, 1.15 for a TPU node.
TPU_NAME=${TPU_NAME:-inception-v3}
TPU_TYPE=${TPU_TYPE:-v2-8}
TPU_VERSION=${TPU_VERSION:-}
# For --create: the network; default: Google chooses. For a TPU node also: preemptible (true or false), and a free /29
# range in the network.
NETWORK=${NETWORK:-default}
PREEMPTIBLE=${PREEMPTIBLE:-false}
TPU_RANGE=${TPU_RANGE:-}
# The maximum number of restarts without a new checkpoint in between, the maximum number of attempts to
# create a new TPU for a lost one or to reconnect, and the seconds to wait before each.
MAX_RESTARTS=${MAX_RESTARTS:-5}
MAX_RENEWALS=${MAX_RENEWALS:-60}
RESTART_SECONDS=${RESTART_SECONDS:-60}
# The seconds after which a gcloud command, or the program after SIGTERM, is killed (queries: at most 120 seconds).
TIMEOUT_SECONDS=${TIMEOUT_SECONDS:-1200}

set -eu

case $0 in */*) here=${0%/*} ;; *) here=. ;; esac
# shellcheck source=run_tpu/gcloud.sh
. "$here/run_tpu/gcloud.sh"
# shellcheck source=run_tpu/arguments.sh
. "$here/run_tpu/arguments.sh"
# shellcheck source=run_tpu/resource.sh
. "$here/run_tpu/resource.sh"
# shellcheck source=run_tpu/vm.sh
. "$here/run_tpu/vm.sh"
# shellcheck source=run_tpu/restarts.sh
. "$here/run_tpu/restarts.sh"
# shellcheck source=run_tpu/end.sh
. "$here/run_tpu/end.sh"
# shellcheck source=run_tpu/cloud_shell.sh
. "$here/run_tpu/cloud_shell.sh"

tab=$(printf '\t') cr=$(printf '\r')
create='' spot='' queued='' dry_run='' architecture=vm pod='' default_version=''
for flag; do
  shift
  parse_flag "$flag" || set -- "$@" "$flag"
done
if ! command -v gcloud >/dev/null && [ -z "$dry_run" ]; then
  fail 'gcloud: not found; install it as in https://cloud.google.com/sdk/docs/install'
fi
check_variables
# gcloud must never wait for input.
export CLOUDSDK_CORE_DISABLE_PROMPTS=1
check_places
check_files "$@"
if [ "${CLOUD_SHELL:-}" = true ] && [ -z "$create" ]; then
  fail "Cloud Shell cannot reach a TPU node, and ends before a run does. Use --create to create the $noun and a" \
    "machine that does the run. For an existing $noun, run this script on another machine"
fi

# The command for the virtual machine; then the arguments of both the program and its preflight.
call=$(show ./run_tpu.sh --create --architecture="$architecture" ${spot:+--spot} ${queued:+--queued} "$@")
if [ -n "$EXPORT_DIR" ]; then set -- --export_dir="$EXPORT_DIR" "$@"; fi
set -- --num_shards="$cores" --data_dir="$DATA_DIR" --model_dir="$MODEL_DIR" "$@"
if [ "$tpu" = vm ] && [ -z "$pod" ]; then
  set -- --tpu=local "$@"
else
  set -- --tpu="$TPU_NAME" --tpu_zone="$ZONE" --gcp_project="$PROJECT" "$@"
fi

made='' sure='' denied='' seen='' missing=0 asked='' absent=$create kind='' cause='' running='' hurry='' silent=''
prepared='' runs=0 run='' job='' lines=0 followed='' description=''
scratch=$(mktemp -d) || fail "a temporary folder cannot be made in ${TMPDIR:-/tmp}: free some space, or set TMPDIR"
prepare_files
# The description of the TPU, different for each start.
mark=${RUN_TPU_MARK:-run_tpu.sh-${scratch##*[./]}-$$}
archive=${TMPDIR:-/tmp}/$mark.tar.gz
if [ -n "$dry_run" ]; then exec 3>&1; else exec 3>&2; fi
exec 4>&2
set_traps

ask_for "$resource"
if [ -n "$create" ] && [ "$description" = "$mark" ]; then
  say "$TPU_NAME: this $noun is left over from a crash of this run, and is deleted first"
  made=$resource sure=1 seen=1
  delete_it || exit 2
  state=NOT_FOUND
fi
# The TPU VM of a queued resource has its name.
if [ "$resource" = queue ] && [ "$state" = NOT_FOUND ]; then ask_for vm; fi
check_state
checked=
for folder in "$DATA_DIR" "$MODEL_DIR"; do
  folder=${folder#gs://}
  bucket=gs://${folder%%/*}
  if [ "$bucket" = "$checked" ]; then continue; fi
  checked=$bucket
  if ! quietly gcloud storage ls "$bucket"; then
    cat "$errors" >&2
    if said "${bucket#gs://}['\"]? (was |is |does )?not (found|exist)"; then
      fail "$bucket: does not exist; gcloud storage buckets create $bucket --location=${ZONE%-*} creates it"
    fi
    fail_because "$bucket: cannot be listed"
  fi
done
code=0 tensorflow=2.15
if [ "$tpu" = node ]; then tensorflow=1.15; fi
step "$here/run" --tf="$tensorflow" inception-v3 preflight --topology="$TPU_TYPE" "$@" || code=$?
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
  if ! create_tpu; then
    if [ -n "$sure" ]; then what='was created, but cannot be used'; else what='could not be created'; fi
    say "$TPU_NAME $what${cause:+: $cause}"
    if [ "$kind" = lasting ]; then exit 2; fi
    exit 1
  fi
fi
say "TensorBoard: ./run tensorboard --logdir=$MODEL_DIR"
train_until_done "$@"
if [ -z "$dry_run" ]; then say "done: $MODEL_DIR"; fi
