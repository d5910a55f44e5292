import json,sys
rows=[json.loads(l) for l in open(sys.argv[1]) if l.strip().startswith('{')]
ours=[r for r in rows if r.get("client","ioloom")=="ioloom"]
print("| seed | limit, 1/s | burst | of the limit, all | after 2 s | refused, first 2 s | refused, after | CPU per request, µs |\n|---|---|---|---|---|---|---|---|")
pc=lambda v:"–" if v is None else f"{100*v:.2f} %"
for r in ours:
    print(f"| {r['seed']} | {r['cap_per_s'] or 'none'} | {r['burst'] or '–'} | {pc(r['share_of_cap']) if r['cap_per_s'] else str(int(r['served_per_s']))+'/s'} | {pc(r['share_of_cap_after_2_s']) if r['cap_per_s'] else '–'} | {pc(r['refused_first_2_s'])} | {pc(r['refused_after'])} | {r['cpu_us_per_request']} |")
others=[r for r in rows if r.get("client","ioloom")!="ioloom"]
if others:
    print("\n| seed | client | requests at a time | objects/s | of the limit | refused | CPU per request, µs | errors |\n|---|---|---|---|---|---|---|---|")
    for r in others:
        print(f"| {r['seed']} | {r['client']} | {r['at_once']} | {r['objects_per_s']} | {pc(r['share_of_cap'])} | {pc(r['refused_share'])} | {r['cpu_us_per_request']} | {r['errors']} |")
