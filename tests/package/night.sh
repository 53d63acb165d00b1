#!/bin/sh
# The night's work of an operator of Cassandra 0.6, as cron ran it: looks at the ring and the node,
# rotates snapshots, repairs, and reports. It calls nothing but nodetool and the tools of a Unix.
#
#   night.sh HOST PORT DATA BACKUPS
HOST=$1
PORT=$2
DATA=$3
BACKUPS=$4
KEYSPACE=Keyspace1
KEEP=2

nt() { nodetool -h $HOST -p $PORT "$@"; }

# The ring: nobody may be down.
nt ring > /tmp/ring.$$ || { echo "CRITICAL: nodetool exited with $?"; exit 2; }
awk '$2 == "Up" || $2 == "Down" {
    print "node " $1 " is " $2 ", has " $3 " " $4 ", owns " $5
}' /tmp/ring.$$
DOWN=`grep -c ' Down ' /tmp/ring.$$`
NODES=`egrep -c ' (Up|Down) ' /tmp/ring.$$`
rm -f /tmp/ring.$$
echo "$NODES nodes, $DOWN down"
[ $DOWN -gt 0 ] && exit 2

# The node.
TOKEN=`nt info | head -1`
LOAD=`nt info | grep '^Load' | cut -d: -f2`
UPTIME=`nt info | awk -F: '/^Uptime/ { print $2 + 0 }'`
HEAP=`nt info | sed -n 's/^Heap Memory (MB) : \(.*\) \/ \(.*\)/\1 of \2/p'`
echo "token $TOKEN, load$LOAD, up for $UPTIME s, heap $HEAP MB"

# Nothing may pile up.
nt tpstats | awk 'NR > 1 && $3 > 100 { print "WARNING: " $3 " pending in " $1 }'
nt tpstats | awk '$1 ~ /^ROW-(MUTATION|READ)-STAGE$/ { print $1 " has completed " $4 }'

# Snapshots: a new one, copied aside; the two newest copies are kept.
TAG=night-`date +%s`
nt clearsnapshot || echo "CRITICAL: clearsnapshot exited with $?"
nt snapshot $TAG || echo "CRITICAL: snapshot exited with $?"
for dir in `find $DATA -type d -path "*/snapshots/*-$TAG"`; do
    ks=`basename \`dirname \\\`dirname $dir\\\`\``
    mkdir -p $BACKUPS/$TAG/$ks
    cp -p $dir/* $BACKUPS/$TAG/$ks/
    files=`ls $BACKUPS/$TAG/$ks | grep -c Standard1-`
    [ $ks = $KEYSPACE ] && [ $files -gt 0 ] && echo "snapshot of $ks is copied"
done
nt clearsnapshot
ls -d $BACKUPS/night-* | sort -r | tail -n +`expr $KEEP + 1` | xargs rm -rf
LEFT=`find $DATA -path '*/snapshots/*-night-*' | wc -l`
echo "`ls -d $BACKUPS/night-* | wc -l` backups, $LEFT snapshots left"

# Repair, and rewrite what is too small to stay as it is.
nt repair $KEYSPACE > /dev/null || echo "CRITICAL: repair exited with $?"
nt flush $KEYSPACE Standard1 || echo "CRITICAL: flush exited with $?"
nt cleanup $KEYSPACE > /dev/null || echo "CRITICAL: cleanup exited with $?"
nt compact $KEYSPACE > /dev/null || echo "CRITICAL: compact exited with $?"
nt getcompactionthreshold |
    sed 's/.*Min=\([0-9]*\), Max=\([0-9]*\).*/compactions of \1 to \2 files/'

# Figures for the graphs.
nt cfstats | awk -v want=$KEYSPACE '
    /^Keyspace: / { ks = $2 }
    /^\tRead Count: / && ks == want { print ks " reads " $3 }
    /^\tWrite Latency: / && ks == want { print ks " write latency " $3 " " $4 }
    /\t\tColumn Family: / { cf = $3 }
    /\t\tSSTable count: / && ks == want && cf == "Standard1" { print ks "." cf " files " $3 }
    /\t\tSpace used \(live\): / && ks == want && cf == "Standard1" { print ks "." cf " bytes " $4 }
    /\t\tWrite Count: / && ks == want && cf == "Standard1" { print ks "." cf " writes " $3 }
    /\t\tKey cache hit rate: / && ks == want && cf == "Standard2" { print cf " hit rate " $5 }
    /^----------------$/ && ks == want { print "end of " ks }'
nt cfhistograms $KEYSPACE Standard1 | awk 'NR > 2 { n++ } END { print n " buckets" }'
nt streams | grep '^Mode'

# What monitoring does to notice a dead node.
nodetool -h $HOST -p 1 info > /dev/null 2>&1
echo "a dead node: nodetool exits with $?"
nt nonsense > /dev/null 2>&1
echo "a mistake: nodetool exits with $?"
