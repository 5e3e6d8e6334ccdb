#!/bin/sh
echo 1..1
sleep 0.3
echo "ok 1 - takes 0.3 s"
