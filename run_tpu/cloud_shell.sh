# shellcheck shell=sh
# Cloud Shell, which ends before a long run does.

# Creates a virtual machine that runs this script with the same arguments, and then deletes itself.
hand_over() {
  set -- env
  for name in PROJECT ZONE BUCKET DATA_DIR MODEL_DIR EXPORT_DIR TPU_NAME TPU_TYPE TPU_VERSION NETWORK PREEMPTIBLE \
    TPU_RANGE MAX_RESTARTS MAX_RENEWALS RESTART_SECONDS TIMEOUT_SECONDS; do
    eval "set -- \"\$@\" \"$name=\$$name\""
  done
  # With the same mark, a machine that crashed and started again recognizes the TPU that it made before.
  set -- "$@" "RUN_TPU_MARK=$mark"
  program=$MODEL_DIR/program
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
$(erase show machine) || shutdown -h now"
  say "creating the machine $TPU_NAME, which creates the $noun $TPU_NAME, does the run and deletes both at the end"
  # The program of a TPU node runs, with its input pipeline, on the machine; that of a TPU VM does not.
  machine_type=e2-standard-4
  if [ "$tpu" = node ]; then machine_type=n1-standard-8; fi
  create_it machine --machine-type="$machine_type" --boot-disk-size=50GB --scopes=cloud-platform \
    --image-family=debian-12 --image-project=debian-cloud --metadata="^:$mark:^startup-script=$startup" ||
    fail_because "the machine $TPU_NAME could not be created"
  # From here on the machine deletes itself.
  made=
  say "the machine does not need this terminal, and writes its log to $MODEL_DIR/run_tpu.log.
To watch it, and to end it early:
  $(manage show machine tail-serial-port-output)
  $(manage show machine delete) && $(erase show "$resource" | sed 's/ --quiet$//')"
}
