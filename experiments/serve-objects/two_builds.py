"""Two builds of `concertina serve` beside each other, in slices in random order: objects of 4 and 80 KiB from memory.

python3 two_builds.py LOAD OLD NEW SECONDS_PER_SLICE BLOCKS

LOAD is the client of ../shared/bench/load.c, compiled; OLD and NEW are programs. The server has processor 0, the
client processor 1. Prints medians, and the median ratio within blocks with its 95 % bootstrap interval.
"""
import json,os,random,subprocess,sys,tempfile,time,urllib.request
load,old,new,length,blocks=sys.argv[1],sys.argv[2],sys.argv[3],float(sys.argv[4]),int(sys.argv[5])
random.seed(7)
servers={}
for name,program in (("old",old),("new",new)):
    d=tempfile.mkdtemp(); os.mkdir(d+"/origin")
    p=subprocess.Popen(["taskset","-c","0",program,"serve","--json","--set","serve.listen=127.0.0.1:0","--set","serve.threads=1",
      "--set","node.revalidate_s=100000","--set","node.memory_bytes=256MiB","--set",'origin.path='+d+"/origin"],
      stdout=subprocess.PIPE,stderr=subprocess.DEVNULL,cwd=d)
    address=json.loads(p.stdout.readline())["address"]
    servers[name]=(p,int(address.rsplit(":",1)[1]))
    for size,tag in ((4096,"s"),(81920,"l")):
        for k in range(500):
            r=urllib.request.Request(f"http://{address}/objects/{tag}{k}",data=os.urandom(size),method="PUT"); urllib.request.urlopen(r).read()
        for k in range(500): assert len(urllib.request.urlopen(f"http://{address}/objects/{tag}{k}").read())==size
def cpu(pid):
    t=0
    for tid in os.listdir(f"/proc/{pid}/task"):
        t+=int(open(f"/proc/{pid}/task/{tid}/schedstat").read().split()[0])
    return t
rows=[]
def slice_(name,tag):
    p,port=servers[name]
    c=cpu(p.pid)
    out=subprocess.run(["taskset","-c","1",load,"-m","http","-p",str(port),"-u",f"/objects/{tag}%d","-n","500","-c","24","-t","1","-s",str(length),"-w","0.05"],capture_output=True,text=True).stdout
    j=json.loads(out); assert not j["err"],j
    return j["rps"],(cpu(p.pid)-c)/1e3/j["ops_all"]
for tag in "sl":
    for n in servers: slice_(n,tag)
for b in range(blocks):
    for tag in "sl":
        order=["old","new"]; random.shuffle(order); got={n:slice_(n,tag) for n in order}
        rows.append((tag,got))
for p,_ in servers.values(): p.terminate()
def med(x): x=sorted(x); n=len(x); return (x[(n-1)//2]+x[n//2])/2
for tag,size in (("s","4 KiB"),("l","80 KiB")):
    for i,what in ((0,"requests/s"),(1,"CPU us/request")):
        r=[g["new"][i]/g["old"][i] for t,g in rows if t==tag]
        boot=sorted(med([random.choice(r) for _ in r]) for _ in range(4000))
        print(size,what,"old",round(med([g["old"][i] for t,g in rows if t==tag]),2),"new",round(med([g["new"][i] for t,g in rows if t==tag]),2),
          "new/old %.4f [%.4f, %.4f]"%(med(r),boot[100],boot[3899]),len(r),"blocks")
