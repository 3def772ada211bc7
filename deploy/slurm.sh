#!/bin/bash
# Trains Inception v3 on the nodes of a Slurm job, one worker on each:
#   sbatch deploy/slurm.sh
# Submit it in the repository, on a file system that all nodes share. The folder DATA of the records and the folder RUN
# of the results are on it, too. Not tried on a cluster.
#SBATCH --job-name=inception-v3
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=32
#SBATCH --time=24:00:00
# Five minutes before the end of its time, the job gets SIGTERM: all workers save the same step, and end with code 75.
#SBATCH --signal=TERM@300
#SBATCH --requeue
set -euo pipefail

data=${DATA:-imagenet} run=${RUN:-runs/inception_v3} port=${PORT:-2222}
hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed "s/\$/:$port/" | paste --serial --delimiters=,)
code=0
# If one worker ends with an error, srun ends the others.
srun --kill-on-bad-exit=1 bash -c '
    exec ./run --tf=2.15 python -m inception_v3.main --accelerator=gpu --num_gpus=4 \
        --data_dir="$1" --model_dir="$2" --export_dir="$2/export" --worker_hosts="$3" --task_index="$SLURM_PROCID"
' worker "$data" "$run" "$hosts" || code=$?
# 1: a worker was lost; 75: the time has ended. The job is queued again, and resumes.
if [[ $code == 1 || $code == 75 ]]; then
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
