#!/bin/sh
echo 1..1
sleep 0.4
echo "ok 1 - takes 0.4 s"
