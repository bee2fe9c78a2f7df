#!/bin/sh
# Prolog of slurmd: leaves a file that says which GPUs a job was given.  The exporter decides what the variables mean.
#
# It never fails, since Slurm drains a node whose prolog does; it asks no driver, since one that is stuck would hold
# the job; and it may run twice.  docs/attribution.md says how it is set up.
umask 022
folder=${TRAINVITALS_SLURM_FOLDER:-/run/trainvitals/slurm}

line() { # a name and a value, whatever is in it, on one line
  printf '%s=%s\n' "$1" "$(printf '%s' "$2" | tr -d '\000-\037')"
}

describe() { # fails when a line cannot be written: a disk is full for some lines and not for others
  boot_id=
  read -r boot_id </proc/sys/kernel/random/boot_id
  line format 1 &&
    line boot_id "$boot_id" &&
    line time "$(date +%s)" &&
    line job_id "$SLURM_JOB_ID" &&
    line sluid "${SLURM_JOB_SLUID:-}" &&
    line user "${SLURM_JOB_USER:-}" &&
    line job_gpus "${SLURM_JOB_GPUS:-}" &&
    line cuda_visible_devices "${CUDA_VISIBLE_DEVICES:-}" &&
    line gpu_device_ordinal "${GPU_DEVICE_ORDINAL:-}"
}

leave() {
  mkdir -p "$folder" || return
  # A reader sees the whole file or none.
  new=$folder/.$SLURM_JOB_ID.$$
  if ! describe >"$new" || ! mv -f "$new" "$folder/$SLURM_JOB_ID"; then
    rm -f "$new"
  fi
}

case ${SLURM_JOB_ID:-} in
  '' | *[!0-9]*) ;;
  *) leave ;;
esac
exit 0
