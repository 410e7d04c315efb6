// Run folders and model files from the disk: chosen, or dropped on the page. A run is read here and sent nowhere.

import { TokenMissing } from './api';
import { h } from './dom';
import { type Run, readRun } from './run';
import type { ModelFile, Source } from './runs';

// Files of a folder that are looked at, and how deep below it.
const FILES_MAX = 2000;
const DEPTH_MAX = 3;
const MODEL_BYTES_MAX = 1e6;

interface Found {
  // The folder's path, empty for single files.
  folder: string;
  file: File;
}

async function* pieces(file: File): AsyncGenerator<string> {
  const reader = file.stream().pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    yield value;
  }
}

async function openRun(name: string, files: Map<string, File>): Promise<Run> {
  const text = async (of: string) => (await files.get(of)?.text()) ?? '';
  const windows = files.get('windows');
  if (!files.has('run.toml')) throw new Error('choose its run.toml too (and `steps`), or the whole folder');
  if (!windows) throw new Error('it has no file `windows`');
  return readRun(name, { description: await text('run.toml'), steps: await text('steps'), windows: pieces(windows) });
}

// The files of a dropped folder and of those below it.
async function walk(from: FileSystemDirectoryEntry, path: string, depth: number, found: Found[]): Promise<void> {
  const reader = from.createReader();
  for (;;) {
    // A reader gives a hundred at a time.
    const some = await new Promise<FileSystemEntry[]>((done, failed) => reader.readEntries(done, failed));
    if (some.length === 0) return;
    for (const inside of some) {
      if (found.length >= FILES_MAX) return;
      if (inside.isFile) {
        const file = await new Promise<File>((done, failed) => (inside as FileSystemFileEntry).file(done, failed));
        found.push({ folder: path, file });
      } else if (depth < DEPTH_MAX) {
        await walk(inside as FileSystemDirectoryEntry, `${path}/${inside.name}`, depth + 1, found);
      }
    }
  }
}

async function dropped(items: DataTransferItem[]): Promise<Found[]> {
  const found: Found[] = [];
  // The items are emptied when the event has been handled.
  const all = items.map((item) => ({ entry: item.webkitGetAsEntry(), file: item.getAsFile() }));
  for (const { entry, file } of all) {
    if (entry?.isDirectory) await walk(entry as FileSystemDirectoryEntry, entry.name, 0, found);
    else if (file) found.push({ folder: '', file });
  }
  return found;
}

// Opens what is among the files: every folder with a run, and every model.
export async function open(found: Found[], rateOf: (model: string) => Promise<number>, add: (source: Source) => void, refuse: (text: string) => void): Promise<void> {
  const folders = new Map<string, Map<string, File>>();
  for (const { folder, file } of found.slice(0, FILES_MAX)) {
    const files = folders.get(folder) ?? new Map<string, File>();
    folders.set(folder, files.set(file.name, file));
  }
  const wrong: string[] = [];
  let opened = 0;
  const take = async (name: string, source: Promise<Source>) => {
    try {
      add(await source);
      opened += 1;
    } catch (error) {
      if (error instanceof TokenMissing) throw error;
      wrong.push(`${name}: ${error instanceof Error ? error.message : String(error)}`);
    }
  };
  for (const [folder, files] of folders) {
    if (files.has('run.toml') || files.has('windows')) await take(folder || 'run', openRun(folder || 'run', files));
    for (const [name, file] of files) {
      if (!name.endsWith('.toml') || name === 'run.toml') continue;
      const path = folder ? `${folder}/${name}` : name;
      await take(path, openModel(path, file, rateOf));
    }
  }
  if (opened === 0 && wrong.length === 0) wrong.push('these files are no run folder (run.toml, windows, steps) and no model (model.toml)');
  refuse(wrong.join(' '));
}

async function openModel(name: string, file: File, rateOf: (model: string) => Promise<number>): Promise<ModelFile> {
  if (file.size > MODEL_BYTES_MAX) throw new Error(`a model file has at most ${MODEL_BYTES_MAX / 1e6} MB`);
  const text = await file.text();
  return { kind: 'model', name, text, rate: await rateOf(text) };
}

// The controls that open files; files may be dropped on them too.
export function opener(ofModels: string, take: (found: Found[]) => void, refuse: (text: string) => void): HTMLElement {
  const files = h('input', { type: 'file', id: 'runs-files', multiple: true });
  const folder = h('input', { type: 'file', id: 'runs-folder', webkitdirectory: true });
  const chosen = (input: HTMLInputElement) => {
    const of = (file: File) => file.webkitRelativePath.split('/').slice(0, -1).join('/');
    take([...(input.files ?? [])].map((file) => ({ folder: of(file), file })));
    // The same folder may have changed when it is chosen again.
    input.value = '';
  };
  files.addEventListener('change', () => chosen(files));
  folder.addEventListener('change', () => chosen(folder));
  const zone = h(
    'div',
    { class: 'drop' },
    h('p', {}, 'Open run folders of ', h('code', {}, 'concertina load'), ', ', h('code', {}, 'serve'), ' or ', h('code', {}, 'measure'), ', and model files of ', h('code', {}, 'concertina fit'), ': choose them, or drop them here. Runs are read in this page and sent nowhere; ', ofModels),
    h('p', { class: 'buttons' }, h('label', {}, 'A folder ', folder), h('label', {}, 'Files ', files)),
  );
  zone.addEventListener('dragover', (event) => {
    event.preventDefault();
    zone.classList.add('over');
  });
  zone.addEventListener('dragleave', () => zone.classList.remove('over'));
  zone.addEventListener('drop', (event) => {
    event.preventDefault();
    zone.classList.remove('over');
    dropped([...(event.dataTransfer?.items ?? [])]).then(take, () => refuse('This browser does not read a dropped folder here (in a page from a file it may not): choose the folder, or its files.'));
  });
  return zone;
}
