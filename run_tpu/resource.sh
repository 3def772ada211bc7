# shellcheck shell=sh
# The TPU: querying, creating and deleting it.
#
# There are four kinds of resources: vm (a TPU VM, or a slice of several), queue (a queued resource, which makes a TPU
# VM of the same name when there is capacity), node (a TPU node), and machine (which does a run for Cloud Shell).
# $resource is the kind that --create makes, $tpu the kind that trains (vm or node), and $made the kind that was made
# and must be deleted.

# Runs a gcloud command on a resource: manage CALLER KIND VERB [FLAG…]. CALLER is quietly or show.
manage() {
  caller=$1 managed=$2 verb=$3
  shift 3
  case $verb-$managed in
    list-machine) set -- list --project="$PROJECT" --zones="$ZONE" "$@" ;;
    list-*) set -- list --project="$PROJECT" --zone="$ZONE" "$@" ;;
    *) set -- "$verb" "$TPU_NAME" --project="$PROJECT" --zone="$ZONE" "$@" ;;
  esac
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

list() { manage quietly "$1" list '--format=value(name)'; }

# Whether a resource is gone: gcloud has just reported its path as not found, and a successful list does not contain it.
# Other errors do not count: a command, a host or an account may be "not found", too.
is_gone() {
  case $1 in
    queue) path=locations/$ZONE/queuedResources ;;
    machine) path=zones/$ZONE/instances ;;
    *) path=locations/$ZONE/nodes ;;
  esac
  # Some answers have the number of the project.
  path="projects/($(printf '%s' "$PROJECT" | sed 's/[.]/[.]/g')|[0-9]+)/$path/$TPU_NAME"
  grep -qE "(^|[^/[:alnum:]])${path}['\"]? (was |is )?not found" "$errors" || return 1
  list "$1" || return 1
  # A list that may be incomplete proves nothing.
  if said 'zone|region|location|incomplete|partial|did not|unreachable|respond|denied|unavailable'; then return 1; fi
  # In a trap, bash replaces the missing number of a return with the exit code before the trap.
  if ! grep -qE "(^|/)$TPU_NAME([[:space:]]|\$)" "$output"; then return 0; fi
  echo "gcloud lists $TPU_NAME, but does not describe it" >"$errors"
  return 1
}

# Queries a resource with the name of the TPU. Sets $state to its state (READY, PREEMPTED …), to NOT_FOUND if it is
# gone, to UNKNOWN if gcloud fails otherwise, or to an empty string if gcloud prints no state; and sets $type, $version
# and $description. $missing counts the consecutive answers that it is gone.
ask_for() {
  if [ "$1" != "$asked" ]; then missing=0; fi
  asked=$1
  case $asked in
    vm) fields=state,acceleratorType,runtimeVersion,description ;;
    node) fields=state,acceleratorType,tensorflowVersion,description ;;
    machine) fields=status,description ;;
    queue)
      node='tpu.nodeSpec[0].node'
      fields="state.state,$node.acceleratorType,$node.runtimeVersion,$node.description"
      ;;
  esac
  state='' type='' version='' description=''
  if manage quietly "$asked" describe "--format=value($fields)"; then
    if [ -n "$dry_run" ]; then
      if [ -n "$absent" ]; then list "$asked"; fi
      return
    fi
    line=
    IFS= read -r line <"$output" || true
    next_field && state=$field
    if [ "$asked" != machine ]; then
      next_field && type=${field##*/}
      next_field && version=${field##*/}
    fi
    description=$line
    case $state in *[!A-Z_]*) state='' type='' version='' description='' ;; esac
    if [ -n "$state" ]; then missing=0; fi
    if [ "$asked" = "$made" ] && is_ours; then seen=1; fi
  elif is_gone "$asked"; then
    state=NOT_FOUND missing=$((missing + 1))
  else
    state=UNKNOWN
  fi
}

# Moves the first tab-separated field of $line to $field.
next_field() {
  field=${line%%"$tab"*}
  line=${line#"$field"}
  line=${line#"$tab"}
}

# Whether the TPU that ask_for found is lost for good.
is_lost() {
  case $state in PREEMPTED | TERMINATED | STOPPING | STOPPED | DELETING | NOT_FOUND) return 0 ;; esac
  return 1
}

cannot_say() {
  cat "$errors" >&2
  fail_because "gcloud cannot tell whether the $noun $TPU_NAME exists in $ZONE"
}

# Ends the script unless the TPU is in the state that the run needs at its start.
check_state() {
  case $create$state in
    1 | 1UNKNOWN)
      # The state is unknown. Creation fails if the TPU exists.
      if [ -n "$dry_run" ]; then return; fi
      if [ "${CLOUD_SHELL:-}" = true ] || { [ -n "$state" ] && [ -s "$errors" ]; }; then cannot_say; fi
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
  # From here on the resource may exist, even if gcloud fails.
  made=$1 sure='' denied='' seen='' missing=0 absent='' kind=''
  shift
  if manage quietly "$made" create --network="$NETWORK" --description="$mark" "$@"; then
    sure=1
    return
  fi
  creation_failed
  return 1
}

# If the operation failed, not the request, the resource may still appear.
creation_failed() {
  cat "$errors" >&2
  if is_lasting || [ "$kind" = refused ]; then
    if said 'polling|operation'; then kind=passing; else denied=1; fi
  fi
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
    await queue ACTIVE 'NOT_FOUND CREATING ACCEPTED WAITING_FOR_RESOURCES PROVISIONING' '' || return 1
  fi
  await "$tpu" READY 'NOT_FOUND CREATING STARTING RESTARTING REIMAGING REPAIRING' 20 || return 1
  check_type_and_version
}

# Waits until a resource of a kind is in the wanted state: await KIND STATE TRANSIENT LIMIT. It asks at most LIMIT
# times while the state is one of TRANSIENT or unknown; without a LIMIT, as often as it takes. A new resource may not be
# found at once: it may be missing for up to ten answers in a row.
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
        if is_lasting; then return 1; fi
        ;;
    esac
    attempt=$((attempt + 1))
    if [ "$attempt" -ge "${4:-$((attempt + 1))}" ] || [ "$failures" -ge 20 ] || [ "$missing" -ge 10 ]; then break; fi
    if [ "$state" != "$before" ]; then say "$TPU_NAME is $state"; fi
    before=$state
    step sleep "$RESTART_SECONDS"
  done
  case $state in '' | "$2") return ;; UNKNOWN) if [ ! -s "$errors" ]; then return; fi ;; esac
  say "$TPU_NAME is $state after its creation"
  cause='' kind=passing
  return 1
}

# Whether the resource that ask_for found was made by this start: no other start has its description.
is_ours() { [ "$description" = "$mark" ]; }

# Whether this start has certainly made the resource, but gcloud did not print its description.
is_unnamed() { [ -n "$sure" ] && [ -z "$description" ]; }

# Ends the script if the TPU that ask_for found is not the one that this start made.
must_be_ours() {
  if [ -z "$made" ] || is_ours; then return; fi
  job=
  fail "$TPU_NAME: this $noun was made by another start, or its description was edited; choose another TPU_NAME"
}

# Sets $enough to the number of answers in a row after which a resource is taken for gone. A resource may still appear
# if its creation was not answered, and is not found at once if its creation succeeded.
count_answers() {
  if [ -n "$denied$requested" ]; then
    enough=1
  elif [ -n "$seen" ]; then
    enough=2
  elif [ -n "$sure" ]; then
    enough=10
  else
    enough=3
  fi
}

# Deletes the created resource, and asks until it is gone. Keeps a resource that is not known to be of this start. Fails
# if a resource that this start has certainly made may be left, whatever its description says.
delete_it() {
  attempt=0 requested=''
  while [ "$attempt" -lt 10 ]; do
    if [ "$attempt" -gt 0 ]; then step sleep "$RESTART_SECONDS"; fi
    attempt=$((attempt + 1))
    ask_for "$made"
    case $state$dry_run in
      NOT_FOUND)
        count_answers
        if [ "$missing" -lt "$enough" ]; then continue; fi
        if [ -n "$denied$requested$seen" ]; then
          made=
          return 0
        fi
        what='its creation was not answered'
        if [ -n "$sure" ]; then what='its creation succeeded, but Google Cloud does not find it'; fi
        say "$TPU_NAME: $what. IT MAY STILL APPEAR, AND COSTS MONEY THEN. This command looks:"
        manage show "$made" describe >&2
        if [ -n "$sure" ]; then return 1; fi
        made=
        return 0
        ;;
      UNKNOWN | '')
        cat "$errors" >&2
        continue
        ;;
    esac
    if [ -z "$dry_run" ] && is_unnamed; then
      say "$TPU_NAME: gcloud does not say whether this start made it; asking again"
      continue
    fi
    if [ -z "$dry_run" ] && ! is_ours; then
      if [ -n "$sure" ]; then
        say "$TPU_NAME: this start made it, but the description is no longer $mark, so it may be another's, and is not" \
          'deleted. IF IT IS YOURS, IT COSTS MONEY UNTIL YOU DELETE IT. The command is:'
        erase show "$made" >&2
        return 1
      fi
      say "$TPU_NAME: this start did not make it, and does not delete it. If it is yours: $(erase show "$made")"
      made=
      return 0
    fi
    requested=1
    if erase quietly "$made"; then
      absent=$create
      ask_for "$made"
      case $state$dry_run in NOT_FOUND | 1)
        made=
        return 0
        ;;
      esac
    fi
    cat "$errors" >&2
  done
  explain
  say "$TPU_NAME COULD NOT BE DELETED${cause:+ ($cause)}. IF IT EXISTS, IT COSTS MONEY UNTIL YOU DELETE IT." \
    'The command is:'
  erase show "$made" >&2
  return 1
}
