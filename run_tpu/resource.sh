# shellcheck shell=sh
# The TPU: asking for it, creating it and deleting it.
#
# There are four kinds of resources: vm (a TPU VM, or a slice of several), queue (a queued resource, which makes a TPU
# VM of the same name when there is capacity), node (a TPU node), and machine (which does a run for Cloud Shell).
# $resource is the kind that --create makes, $tpu the kind that trains (vm or node), and $made the kind that was made
# and must be deleted.

# Runs a gcloud command on a resource: manage CALLER KIND VERB [FLAG…]. CALLER is quietly or show.
manage() {
  caller=$1 managed=$2 verb=$3
  shift 3
  set -- "$verb" "$TPU_NAME" --project="$PROJECT" --zone="$ZONE" "$@"
  case $managed in
    vm) set -- tpus tpu-vm "$@" ;;
    queue) set -- tpus queued-resources "$@" ;;
    node) set -- tpus "$@" ;;
    machine) set -- instances "$@" ;;
  esac
  "$caller" gcloud compute "$@"
}

# Deletes a resource, or shows the command: erase CALLER KIND.
erase() {
  # --force deletes the TPU VM of a queued resource, too.
  if [ "$2" = queue ]; then set -- "$@" --force; fi
  caller=$1 managed=$2
  shift 2
  manage "$caller" "$managed" delete "$@" --quiet
}

# Asks for a resource with the name of the TPU. Sets $state to its state (READY, PREEMPTED …), to NOT_FOUND, to UNKNOWN
# if gcloud fails, or to an empty string if gcloud prints no state; and sets $type, $version, $created and $description.
ask_for() {
  asked=$1
  case $asked in
    vm) fields=state,acceleratorType,runtimeVersion,createTime,description ;;
    node) fields=state,acceleratorType,tensorflowVersion,createTime,description ;;
    machine) fields=status,description ;;
    queue)
      node='tpu.nodeSpec[0].node'
      fields="state.state,$node.acceleratorType,$node.runtimeVersion,createTime,$node.description"
      ;;
  esac
  state='' type='' version='' created='' description=''
  if manage quietly "$asked" describe "--format=value($fields)"; then
    if [ -n "$dry_run" ]; then return; fi
    line=
    IFS= read -r line <"$output" || true
    next_field && state=$field
    if [ "$asked" != machine ]; then
      next_field && type=${field##*/}
      next_field && version=${field##*/}
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

# Whether the TPU that ask_for found is lost: it does not come back.
is_lost() {
  case $state in PREEMPTED | TERMINATED | STOPPING | STOPPED | DELETING | NOT_FOUND) return 0 ;; esac
  return 1
}

cannot_say() {
  cat "$errors" >&2
  fail_because "gcloud cannot tell whether the $noun $TPU_NAME exists in $ZONE"
}

# Ends the script unless the state of the TPU, before the run, is the needed one.
check_state() {
  case $create$state in
    1 | 1UNKNOWN)
      # The state is unknown. Creation fails if the TPU exists.
      if [ -n "$dry_run" ]; then return; fi
      if [ "${CLOUD_SHELL:-}" = true ] || { [ -n "$state" ] && [ -s "$errors" ]; }; then cannot_say; fi
      unsure=1
      ;;
    UNKNOWN) cannot_say ;;
    1NOT_FOUND) ;;
    READY) check_type_and_version ;;
    '') if [ -z "$dry_run" ]; then cannot_say; fi ;;
    1*)
      fail "$TPU_NAME: this $noun already exists and is $state; it was not changed. Use it without --create, choose" \
        "another TPU_NAME, or delete it with: $(erase show "$asked")"
      ;;
    NOT_FOUND) fail "$TPU_NAME: does not exist in $ZONE; --create creates it, and deletes it at the end" ;;
    *) fail "$TPU_NAME: this $noun is $state, and must be READY" ;;
  esac
}

# Whether the version of a TPU is the wanted one.
is_wanted_version() {
  case $version in '' | "$TPU_VERSION") return 0 ;; esac
  if [ "$tpu" = node ]; then
    case $version in "$TPU_VERSION".*) return 0 ;; esac
  elif [ -n "$default_version" ]; then
    case $version in tpu-vm-tf-2.15.[0-9]"$pod"-se) return 0 ;; esac
  fi
  return 1
}

# Ends the script if a TPU has another type or version than the run needs.
check_type_and_version() {
  if [ -n "$dry_run" ]; then return; fi
  if [ -z "$type" ] || [ -z "$version" ]; then
    say "gcloud does not say whether $TPU_NAME is a $TPU_TYPE with $software $TPU_VERSION"
  fi
  mismatch=
  case $type in '' | "$TPU_TYPE") ;; *) mismatch="is a $type, not a $TPU_TYPE (variable TPU_TYPE)" ;; esac
  if ! is_wanted_version; then
    mismatch="${mismatch:+$mismatch, and }has $software $version, not $TPU_VERSION (variable TPU_VERSION)"
  fi
  if [ -z "$mismatch" ]; then return; fi
  fail "$TPU_NAME: this $noun $mismatch. Correct the variable, or choose another TPU_NAME"
}

# Creates a resource of the given kind, with the given flags.
create_it() {
  # From here on the resource may exist, even if gcloud fails. The time decides whether a resource without a
  # description was made since.
  made=$1 sure='' existed='' kind=''
  # shellcheck disable=SC2034  # is_ours and await choose one of them.
  born_vm='' born_node='' born_queue='' born_machine=''
  began=$(date -u +%Y%m%d%H%M%S 2>/dev/null) || began=
  shift
  if manage quietly "$made" create --network="$NETWORK" --description="$mark" "$@"; then
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

# Creates the TPU and waits until it is ready.
create_tpu() {
  prepared=
  case $resource in
    vm) set -- --accelerator-type="$TPU_TYPE" --version="$TPU_VERSION" ;;
    queue) set -- --node-id="$TPU_NAME" --accelerator-type="$TPU_TYPE" --runtime-version="$TPU_VERSION" ;;
    node)
      set -- --accelerator-type="$TPU_TYPE" --version="$TPU_VERSION"
      if [ -n "$TPU_RANGE" ]; then set -- "$@" --range="$TPU_RANGE"; fi
      if [ "$PREEMPTIBLE" = true ]; then set -- "$@" --preemptible; fi
      ;;
  esac
  if [ -n "$spot" ]; then set -- "$@" --spot; fi
  create_it "$resource" "$@" || return 1
  if [ "$resource" = queue ]; then
    await queue ACTIVE 'CREATING ACCEPTED WAITING_FOR_RESOURCES PROVISIONING' '' || return 1
  fi
  await "$tpu" READY 'CREATING STARTING RESTARTING REIMAGING REPAIRING' 20 || return 1
  check_type_and_version
}

# Waits until a resource of a kind is in the wanted state: await KIND STATE TRANSIENT LIMIT. It asks at most LIMIT
# times in a row while the state is one of TRANSIENT or unknown; without a LIMIT, as often as it takes.
await() {
  attempt=0 failures=0 before=
  while :; do
    ask_for "$1"
    case " $3 " in
      *" $state "*) failures=0 ;;
      *)
        if [ "$state" != UNKNOWN ] || [ ! -s "$errors" ]; then break; fi
        failures=$((failures + 1))
        cat "$errors" >&2
        explain
        if [ "$kind" = lasting ]; then return 1; fi
        ;;
    esac
    attempt=$((attempt + 1))
    if [ "$attempt" -ge "${4:-$((attempt + 1))}" ] || [ "$failures" -ge 20 ]; then break; fi
    if [ "$state" != "$before" ]; then say "$TPU_NAME is $state"; fi
    before=$state
    step sleep "$RESTART_SECONDS"
  done
  # Only now is it known when the resource was made.
  eval "born_$1=\$created"
  case $state in '' | "$2") return ;; UNKNOWN) if [ ! -s "$errors" ]; then return; fi ;; esac
  say "$TPU_NAME is $state after its creation"
  cause='' kind=passing
  return 1
}

# Whether the resource that ask_for found was made by this start.
is_ours() {
  eval "born=\$born_$asked"
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

# Ends the script if the TPU that ask_for found is not the one that this start made.
must_be_ours() {
  if [ -z "$made" ] || is_ours; then return; fi
  # A queued resource is checked by itself when it is deleted.
  if [ "$made" != queue ]; then made=; fi
  job=
  fail "$TPU_NAME: this $noun was made by another start, and was not changed; choose another TPU_NAME"
}

# Deletes the resource that was created, and asks whether it is gone.
delete_it() {
  attempt=0
  while [ "$attempt" -lt 10 ]; do
    if [ "$attempt" -gt 0 ]; then step sleep "$RESTART_SECONDS"; fi
    attempt=$((attempt + 1))
    ask_for "$made"
    case $state in
      NOT_FOUND)
        # A creation that got no answer may still make the resource.
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
    if erase quietly "$made" || said 'not[ _]found'; then
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
  erase show "$made" >&2
  return 1
}
