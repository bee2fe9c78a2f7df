#!/bin/sh
#SBATCH --job-name=train
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --time=24:00:00
# SIGTERM to the batch script alone, two minutes before the limit: the supervisor passes it on.
#SBATCH --signal=B:TERM@120
#
# One node; docs/run.md says what is different on several.  Arguments are the training command.
checkpoints=${CHECKPOINTS:?the folder of the checkpoints, on shared storage}

# exec would take the job's own way to requeue itself; so the shell passes the signal on.
trainvitals run --name "slurm-$SLURM_JOB_ID" --max-restarts 5 --grace 100 \
  --checkpoint-dir "$checkpoints" -- "$@" &
supervisor=$!
trap 'kill -TERM "$supervisor"' TERM
# A signal ends the first wait; the second one returns the supervisor's status.
wait "$supervisor"
status=$?
while kill -0 "$supervisor" 2>/dev/null; do
  wait "$supervisor"
  status=$?
done

if [ "$status" -eq 143 ]; then
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$status"
