#!/bin/sh
echo 1..1
sleep 0.2
echo "ok 1 - takes 0.2 s"
