#!/bin/sh
# Epilog of slurmd: removes what prolog.sh left.  It never fails, and may run twice.
folder=${TRAINVITALS_SLURM_FOLDER:-/run/trainvitals/slurm}

case ${SLURM_JOB_ID:-} in
  '' | *[!0-9]*) ;;
  *) rm -f "$folder/$SLURM_JOB_ID" "$folder/.$SLURM_JOB_ID".* ;;
esac
exit 0
