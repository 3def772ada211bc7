# shellcheck shell=sh
# Flags and variables: parsing and checks.

types='v2-8 v2-32 v2-128 v2-256 v2-512 v3-8 v3-32 v3-64 v3-128 v3-256 v3-512 v3-1024 v3-2048'
# The image of a TPU VM. TPUs v2 and v3 use the stream executor, which is the "se" in its name.
image='tpu-vm-tf-2.15.1'

print_help() {
  sed -n -e '/^set/q' -e '2,$s/^# \{0,1\}//p' -e 's/^\([A-Z_]*\)=\${[A-Z_]*:\{0,1\}-\(.*\)}$/    \1=\2/p' "$0"
}

# Sets $name to a flag with two dashes: the program accepts -FLAG for --FLAG.
spell() { case $1 in --*) name=$1 ;; -*) name=-$1 ;; *) name= ;; esac }

# Applies a flag of this script, or ends the script; fails for a flag of the program.
parse_flag() {
  spell "$1"
  case $name in
    --architecture=vm | --architecture=node)
      architecture=${name#*=}
      return
      ;;
  esac
  case ${name%%=*} in
    --help | --h | --helpshort | --helpfull | --helpxml)
      print_help
      exit
      ;;
    --create | --spot | --queued)
      if [ "$name" != "${name%%=*}" ]; then fail "$1: this flag has no value"; fi
      eval "${name#--}=1"
      ;;
    --dry_run | --dry-run) dry_run=1 ;;
    --architecture) fail "$1: must be --architecture=vm (a TPU VM, the default) or --architecture=node" ;;
    --preemptible) fail "$1: use --spot; for a TPU node, set the variable PREEMPTIBLE" ;;
    --tpu | --name) fail "$1: set the variable TPU_NAME" ;;
    --tpu_zone | --zone) fail "$1: set the variable ZONE" ;;
    --gcp_project | --project) fail "$1: set the variable PROJECT" ;;
    --num_shards | --accelerator-type | --accelerator_type) fail "$1: set the variable TPU_TYPE" ;;
    --version | --runtime-version | --tf) fail "$1: set the variable TPU_VERSION" ;;
    --network) fail "$1: set the variable NETWORK" ;;
    --data_dir) fail "$1: set the variable DATA_DIR" ;;
    --model_dir) fail "$1: set the variable MODEL_DIR" ;;
    --export_dir) fail "$1: set the variable EXPORT_DIR" ;;
    --master) fail "$1: remove it; the variable TPU_NAME names the TPU" ;;
    --topology) fail "$1: remove it; the preflight uses the variable TPU_TYPE" ;;
    --use_tpu | --nouse_tpu) fail "$1: remove it; the run always uses the TPU" ;;
    --xla | --noxla | --json | --nojson)
      fail "$1: only the preflight has this flag; use it with ./run inception-v3 preflight"
      ;;
    *) return 1 ;;
  esac
}

# Sets the variables that depend on the architecture, and refuses flags that only the other one has.
choose_architecture() {
  tpu=$architecture
  resource=$tpu
  if [ "$tpu" = node ]; then
    noun=node software=TensorFlow
    if [ -n "$spot" ]; then fail '--spot: only for TPU VMs; for a TPU node, set the variable PREEMPTIBLE=true'; fi
    if [ -n "$queued" ]; then fail '--queued: only for TPU VMs; remove it, or --architecture=node'; fi
    return
  fi
  noun='TPU VM' software=image
  if [ "$PREEMPTIBLE" = true ]; then fail 'PREEMPTIBLE=true: only for --architecture=node; for a TPU VM, use --spot'; fi
  if [ -n "$TPU_RANGE" ]; then fail "TPU_RANGE=$TPU_RANGE: only for --architecture=node; remove it"; fi
  if [ -z "$create" ]; then
    if [ -n "$spot" ]; then fail '--spot: only with --create, which makes a TPU VM'; fi
    if [ -n "$queued" ]; then fail '--queued: only with --create, which makes a TPU VM'; fi
  fi
  if [ -n "$queued" ]; then resource=queue; fi
}

# Ends the script unless the value of a variable matches as a whole: check VARIABLE PATTERN ADVICE.
check() {
  eval "value=\${$1-}"
  # grep would check each line as a value of its own.
  case $value in
    *[[:cntrl:]]*) ;;
    *) if printf '%s\n' "$value" | LC_ALL=C grep -qxE "$2"; then return; fi ;;
  esac
  fail "$1=$value: must be $3"
}

check_type() {
  case $TPU_TYPE in
    v5* | v6* | tpu7* | v7*)
      fail "TPU_TYPE=$TPU_TYPE: TPUs v5 and later need the runtime PJRT, on which TPUEstimator fails" \
        "(https://github.com/tensorflow/tensorflow/issues/90807); use one of $types"
      ;;
  esac
  check TPU_TYPE "$(printf '%s' "$types" | sed 's/ /|/g')" "one of $types"
  cores=${TPU_TYPE#*-}
  # A host has 8 cores: a larger TPU is a slice of several hosts, and has another image.
  if [ "$cores" -gt 8 ]; then pod=-pod; fi
}

check_version() {
  if [ "$tpu" = node ]; then
    TPU_VERSION=${TPU_VERSION:-1.15}
    case $TPU_VERSION in
      1.15 | 1.15.[0-9]) return ;;
      *) fail "TPU_VERSION=$TPU_VERSION: must be 1.15, or 1.15.N: no TPU node has TensorFlow 2.15" ;;
    esac
  fi
  wanted=$image$pod-se
  if [ -z "$TPU_VERSION" ]; then default_version=1 TPU_VERSION=$wanted; fi
  case $TPU_VERSION in
    tpu-vm-tf-2.15.[0-9]"$pod"-se) ;;
    tpu-vm-tf-2.15.*-pjrt)
      fail "TPU_VERSION=$TPU_VERSION: a $TPU_TYPE needs the stream executor (-se), not PJRT; use $wanted"
      ;;
    tpu-vm-tf-2.15.[0-9]-pod-se) fail "TPU_VERSION=$TPU_VERSION: for slices; a $TPU_TYPE has one host, use $wanted" ;;
    tpu-vm-tf-2.15.[0-9]-se)
      fail "TPU_VERSION=$TPU_VERSION: for one host; a $TPU_TYPE is a slice of $((cores / 8)) hosts, use $wanted"
      ;;
    *) fail "TPU_VERSION=$TPU_VERSION: must be $wanted: a TPU VM runs the program on TensorFlow 2.15" ;;
  esac
}

check_variables() {
  check PREEMPTIBLE 'true|false' 'true or false'
  check TPU_RANGE '(([0-9]{1,3}\.){3}[0-9]{1,3}/29)?' 'a range such as 10.1.0.0/29'
  choose_architecture
  check_type
  check_version
  for name in MAX_RESTARTS MAX_RENEWALS RESTART_SECONDS; do
    check "$name" '0|[1-9][0-9]{0,8}' 'a whole number, with at most 9 digits'
  done
  check TIMEOUT_SECONDS '[1-9][0-9]{0,8}' 'a whole number above 0, with at most 9 digits'
  label='[a-z]([a-z0-9-]{0,61}[a-z0-9])?'
  check TPU_NAME "$label" \
    'a name of at most 63 characters, which are a-z, 0-9 and -, begin with a letter and do not end with -'
  check NETWORK "(projects/[a-z0-9.:-]+/global/networks/)?$label" \
    'the name of a network; gcloud compute networks list shows them'
  check RUN_TPU_MARK '([A-Za-z0-9][A-Za-z0-9._-]*)?' 'unset; this script sets it for a machine'
}

# The project, the zone and the folders; gcloud may know the first two.
check_places() {
  PROJECT=${PROJECT:-$(setting project)}
  if [ -z "$PROJECT" ]; then
    fail 'PROJECT: not set; use PROJECT=my-project ./run_tpu.sh, or gcloud config set project my-project'
  fi
  ZONE=${ZONE:-$(setting compute/zone)}
  if [ -z "$ZONE" ]; then
    fail "ZONE: not set; use ZONE=us-central1-b ./run_tpu.sh; gcloud compute tpus locations list shows zones with TPUs"
  fi
  check ZONE '[a-z]+(-[a-z]+)+[0-9]+-[a-z0-9]+' \
    'a zone, such as us-central1-b; gcloud compute tpus locations list shows them'
  check PROJECT '([a-z0-9.-]+:)?[a-z][a-z0-9-]*[a-z0-9]' 'the ID of a project; gcloud projects list shows them'
  for folder in "$DATA_DIR" "$MODEL_DIR"; do
    case $folder in
      gs:///*) fail 'BUCKET: not set; use BUCKET=my-bucket ./run_tpu.sh, or set DATA_DIR and MODEL_DIR' ;;
      gs://?*) ;;
      *) fail "$folder: must be in Cloud Storage, gs://BUCKET/FOLDER: the TPU cannot read this machine's files" ;;
    esac
  done
  path='[a-z0-9][a-z0-9._-]{1,220}[a-z0-9](/.*)?'
  for name in DATA_DIR MODEL_DIR; do check "$name" "gs://$path" 'gs://BUCKET/FOLDER, with a valid name of a bucket'; done
  if [ "$tpu" = node ]; then
    check EXPORT_DIR "gs://$path|[^:]*" 'gs://BUCKET/FOLDER, with a valid name of a bucket, or a folder of this machine'
  else
    check EXPORT_DIR "(gs://$path)?" 'gs://BUCKET/FOLDER, with a valid name of a bucket, or empty: nothing is copied back'
  fi
}

# Ends the script if a new TPU VM would lack a file that a flag of the program names.
check_files() {
  if [ "$tpu" = node ] || [ -z "$create" ]; then return; fi
  for flag; do
    spell "$flag"
    case $name in
      --*=gs://* | --class_weights=balanced) ;;
      # Relative patterns of files begin in DATA_DIR.
      --class_weights=?* | --init_from=?* | --flagfile=?* | --train_files=[/~]* | --eval_files=[/~]*)
        fail "$flag: names a file of this machine, which the new TPU VM does not have; copy it to gs://BUCKET/FOLDER," \
          'and name it there (the flags of a --flagfile can be given to this script)'
        ;;
    esac
  done
}
