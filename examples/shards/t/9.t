#!/bin/sh
echo 1..1
sleep 0.02
echo "ok 1 - takes 0.02 s"
